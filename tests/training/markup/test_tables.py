from turret.training.markup.tables import Column, facts, numeric, table


def test_a_table_names_its_rows_and_aligns_its_numbers() -> None:
    made = table([Column("run"), numeric("ndcg@10")], [["<a>", "0.5"], ["b", "0.4"]], "runs", marked=(1,))
    assert "<caption>runs</caption>" in made
    assert '<th scope="row">&lt;a&gt;</th><td class="n">0.5</td>' in made
    assert made.count('<tr class="own">') == 1


def test_facts_are_names_with_values() -> None:
    assert facts([("size", "9 < 10")]) == "<dl><dt>size</dt><dd>9 &lt; 10</dd></dl>"
