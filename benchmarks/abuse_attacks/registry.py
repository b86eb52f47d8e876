"""All attacks, by the points of the security review that they repeat."""

from benchmarks.abuse_attacks import (
    activation,
    answers,
    authorization,
    bodies,
    bundles,
    descriptors,
    draining,
    histories,
    key_guessing,
    probes,
    slow_clients,
    trailers,
)
from benchmarks.abuse_attacks.attack import Attack

ATTACKS: tuple[Attack, ...] = (
    Attack("respawn_without_key_file", 1, authorization.respawn_without_key_file, stall_counts=False),
    Attack("respawn_with_keys_moved", 1, authorization.respawn_with_keys_moved, stall_counts=False),
    Attack(
        "respawn_with_keys_out_of_reach", 1, authorization.respawn_with_keys_out_of_reach, stall_counts=False
    ),
    Attack("revocation_without_descriptors", 2, authorization.revocation_without_descriptors, open_files=300),
    Attack("many_trailer_lines", 3, trailers.many_trailer_lines, seconds=8),
    Attack("endless_trailer_line", 3, trailers.endless_trailer_line, seconds=8),
    Attack("endless_chunk_extension", 3, trailers.endless_chunk_extension),
    Attack("chunk_extensions", 3, trailers.chunk_extensions),
    Attack("one_byte_chunks", 3, trailers.one_byte_chunks),
    Attack("key_in_trailer", 3, trailers.key_in_trailer),
    Attack("tower_reads_files", 4, bundles.tower_reads_files),
    Attack("tower_loops", 4, bundles.tower_loops),
    Attack("unread_batches", 5, answers.unread_batches, edge=True, seconds=10),
    Attack("unread_pipelined_batches", 5, answers.unread_pipelined_batches, edge=True, seconds=6),
    Attack("unread_recommendations", 5, answers.unread_recommendations, edge=True, seconds=6),
    Attack("slow_readers", 5, answers.slow_readers, seconds=4),
    Attack("wrong_bodies", 6, bodies.wrong_bodies),
    Attack("wrong_bodies_without_key", 6, bodies.wrong_bodies_without_key),
    Attack("large_right_bodies", 6, bodies.large_right_bodies, seconds=3),
    Attack(
        "stopped_worker",
        7,
        activation.stopped_worker,
        {"activation_seconds": "1", "overlap_minimum": "0"},
        stall_counts=False,
    ),
    Attack("overrunning_checks", 8, bundles.overrunning_checks, {"gate_seconds": "0.5"}),
    Attack("huge_golden_queries", 8, bundles.huge_golden_queries),
    Attack("sigterm_under_load", 9, draining.sigterm_under_load, {"drain_delay": "0.5"}, stall_counts=False),
    Attack("open_paths", 10, probes.open_paths, edge=True),
    Attack("long_histories", 11, histories.long_histories, prepare=histories.fill_histories),
    Attack("upgrades", 12, probes.upgrades),
    Attack("all_descriptors", 13, descriptors.all_descriptors, open_files=300),
    Attack(
        "more_connections_than_allowed",
        13,
        descriptors.more_connections_than_allowed,
        open_files=756,
    ),
    Attack("reconnecting", 13, descriptors.reconnecting, seconds=3),
    Attack("kept_connections", 13, slow_clients.kept_connections),
    Attack(
        "late_forced_report",
        14,
        activation.late_forced_report,
        {"gate_seconds": "1.5", "overlap_minimum": "0.1"},
    ),
    Attack("long_last_words", 15, activation.long_last_words, stall_counts=False),
    Attack(
        "activation_queue", 16, activation.activation_queue, {"activation_seconds": "2", "gate_seconds": "3"}
    ),
    Attack("fresh_items_at_once", 17, histories.fresh_items_at_once, {"fresh_items_limit": "50"}),
    Attack("fields_of_known_items", 17, histories.fields_of_known_items, {"fresh_items_limit": "50"}),
    Attack(
        "short_admin_key", 18, key_guessing.short_admin_key, {"admin_key": "4711"}, may_refuse=True, seconds=8
    ),
    Attack("wrong_keys", 18, key_guessing.wrong_keys, seconds=3),
    Attack("planted_admin_key", 19, authorization.planted_admin_key, stall_counts=False),
    Attack("remade_admin_key", 19, authorization.remade_admin_key, stall_counts=False),
    Attack("users_of_other_bytes", 20, histories.users_of_other_bytes),
    Attack("files_of_others", 22, histories.files_of_others),
    Attack("opening_asks_for_address_space", 23, bundles.opening_asks_for_address_space),
    Attack("idle_expect_continue", 24, slow_clients.idle_expect_continue),
    Attack("half_sent_bodies", 24, slow_clients.half_sent_bodies),
    Attack("half_sent_bodies_with_key", 24, slow_clients.half_sent_bodies_with_key),
    Attack("slow_heads", 24, slow_clients.slow_heads, seconds=3),
    Attack("times_of_a_hundred_ones", 25, histories.times_of_a_hundred_ones),
    Attack("foreign_event_id", 26, histories.foreign_event_id),
    Attack("linked_version", 27, bundles.linked_version),
    Attack("paths_in_answers", 27, bundles.paths_in_answers),
    Attack("overload", 29, probes.overload, edge=True, seconds=3),
    Attack("pipelining", 29, probes.pipelining, edge=True, seconds=3),
)

# Points that are no attack on a running service.
NOT_ATTACKS = {28: "docker-compose.yml fixes what its containers share (tests/deploy/test_compose_files.py)"}
