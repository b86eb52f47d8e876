"""What the service uses of other packages beyond their documents: a release that changes it fails here.

The upper bounds in pyproject.toml hold such releases back; a bound is raised once these tests pass.
"""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import mmap_dict, multiprocess
from redis.crc import key_slot
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turret.service.http.guard import Guard
from turret.tower.index.faiss_calls import faiss

# Attributes of uvicorn's connections that the guard reads or sets.
OF_CONNECTIONS = (
    "connections",
    "cycle",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "server",
    "timeout_keep_alive_task",
    "transport",
    "url",
)


def test_uvicorn_calls_the_methods_that_the_guard_overrides() -> None:
    """With the same arguments, on connections with the attributes that it looks at."""
    for name, own in inspect.getmembers(Guard, inspect.isfunction):
        theirs = getattr(HttpToolsProtocol, name, None)
        if name == "__init__" or theirs is None or own is theirs:
            continue
        arguments = [list(inspect.signature(one).parameters) for one in (own, theirs)]
        assert arguments[0] == arguments[1], f"uvicorn changed {name}: service/http/guard.py overrides it"
    overridden = {name for name in vars(Guard) if name in vars(HttpToolsProtocol)}
    assert overridden > {"data_received", "on_headers_complete", "on_message_complete", "on_body"}, (
        "uvicorn's protocol lost a method that service/http/guard.py overrides; serve with TURRET_GUARD=false"
    )
    source = inspect.getsource(HttpToolsProtocol)
    lost = [name for name in OF_CONNECTIONS if f"self.{name}" not in source]
    assert not lost, f"uvicorn's connections have no {lost} any more, which service/http/guard.py reads"
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__)


def test_the_files_of_prometheus_client_hold_values_by_key(tmp_path: Path) -> None:
    """`AllocatedDict` writes them with blocks of its own, and a scrape merges those of all workers."""
    files: Any = mmap_dict.MmapedDict
    collector: Any = multiprocess.MultiProcessCollector
    path = str(tmp_path / "counter_1.db")
    file = files(path)
    lost = {"_f", "_m", "_capacity", "_used", "_positions", "_fname"} - vars(file).keys()
    assert not lost, f"prometheus_client's files have no {lost} any more: AllocatedDict sets them"
    assert "_init_value" in vars(files), "prometheus_client lost a method that AllocatedDict overrides"
    key = mmap_dict.mmap_key("metric", "metric_total", ["name"], ["value"], "help")
    file.write_value(key, 2.5, 0.0)
    file.close()
    (found,) = files.read_all_values_from_file(path)
    assert found[:2] == (key, 2.5)
    (metric,) = collector.merge([path])
    assert metric.samples[0].value == 2.5


def test_the_calls_of_faiss_take_pointers() -> None:
    """The products of rows, the best of all and of some, and an index without FAISS's own checks."""
    random = np.random.default_rng(0)
    vectors, query = random.random((50, 8), np.float32), random.random(8, np.float32)
    products, rows = vectors @ query, np.array([7, 3, 11], dtype=np.int64)
    scores, found = np.empty(3, np.float32), np.empty(3, np.int64)
    pointer, asked = faiss.swig_ptr(vectors), faiss.swig_ptr(query)
    into = 3, faiss.swig_ptr(scores), faiss.swig_ptr(found)
    said = "FAISS changed this call: tower/index uses it"
    faiss.fvec_inner_products_by_idx(faiss.swig_ptr(scores), asked, pointer, faiss.swig_ptr(rows), 8, 1, 3)
    np.testing.assert_allclose(scores, products[rows], rtol=1e-5, err_msg=said)
    faiss.knn_inner_product(asked, pointer, 8, 1, 50, *into)
    assert found.tolist() == np.argsort(-products)[:3].tolist(), said
    faiss.knn_inner_products_by_idx(asked, pointer, faiss.swig_ptr(rows), 8, 1, 50, 3, *into)
    assert found.tolist() == rows[np.argsort(-products[rows])].tolist(), said
    index = faiss.IndexFlatIP(8)
    index.add(vectors)
    index.search_c(1, asked, 3, faiss.swig_ptr(scores), faiss.swig_ptr(found), None)
    assert found.tolist() == np.argsort(-products)[:3].tolist(), said


def test_redis_names_the_slots_of_a_cluster_by_its_specification() -> None:
    """Of a key with a hash tag, that of the tag alone."""
    said = "redis-py changed key_slot: service/stores/redis/client.py sends commands by it"
    assert key_slot(b"123456789") == 0x31C3 % 16384, said
    assert key_slot(b"{user}a") == key_slot(b"user"), said
