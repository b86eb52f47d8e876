"""HTML and SVG in which every value is text: elements, tables, small drawings and the page around them."""

__all__ = ["document", "elements", "interval", "line_chart", "numbers", "share_chart", "tables"]
