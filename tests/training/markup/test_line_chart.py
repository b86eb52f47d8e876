from turret.training.markup.line_chart import MOST_DOTS, Line, Mark, line_chart


def test_a_line_is_drawn_through_its_points_from_left_to_right() -> None:
    drawn = line_chart("loss", [Line("batches", [0, 50, 100], [3.0, 2.0, 1.0])])
    (points,) = (part.partition('"')[0] for part in drawn.split('points="')[1:])
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    across, down = [place[0] for place in places], [place[1] for place in places]
    assert across == sorted(across)
    assert down == sorted(down)  # a falling loss falls on the page, too
    assert drawn.count("<circle") == 3
    assert "batches: 2 at step 50" in drawn


def test_long_lines_have_no_dots() -> None:
    steps = list(range(MOST_DOTS + 1))
    assert "<circle" not in line_chart("loss", [Line("loss", steps, [float(step) for step in steps])])


def test_a_mark_has_its_words_and_labels_are_text() -> None:
    line = Line("<b>", [1, 2], [0.1, 0.2])
    drawn = line_chart("ndcg", [line], [Mark(2, 0.2, "epoch 2: 0.2000")], legend=True)
    assert "epoch 2: 0.2000" in drawn
    assert 'class="ring c1"' in drawn
    assert "<b>" not in drawn


def test_a_chart_without_a_value_says_so() -> None:
    drawn = line_chart("ndcg", [Line("ndcg", [], [])])
    assert "Nothing was recorded." in drawn
    assert "<svg" not in drawn


def test_a_single_point_is_drawn() -> None:
    assert "nan" not in line_chart("ndcg", [Line("ndcg", [5], [0.0])])
