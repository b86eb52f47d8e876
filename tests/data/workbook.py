"""A workbook as Excel writes it, from nothing but the format's own text (ECMA-376)."""

import io
from datetime import datetime
from xml.sax.saxutils import escape
from zipfile import ZipFile

Cell = str | float | datetime | None

_NS = "http://schemas.openxmlformats.org"
_TYPES = f"""<Types xmlns="{_NS}/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/xl/workbook.xml"
 ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
<Override PartName="/xl/styles.xml"
 ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/>
<Override PartName="/xl/worksheets/sheet1.xml"
 ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>"""
_OFFICE = f"{_NS}/officeDocument/2006/relationships"
_ROOT = f"""<Relationships xmlns="{_NS}/package/2006/relationships">
<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>"""
_BOOK = f"""<workbook xmlns="{_NS}/spreadsheetml/2006/main" xmlns:r="{_OFFICE}">
<sheets><sheet name="Online Retail" sheetId="1" r:id="r1"/></sheets></workbook>"""
_PARTS = f"""<Relationships xmlns="{_NS}/package/2006/relationships">
<Relationship Id="r1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>
<Relationship Id="r2" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>"""
# Style 1 shows a number as a date and time (built-in format 22).
_STYLES = f"""<styleSheet xmlns="{_NS}/spreadsheetml/2006/main"><cellXfs count="2">
<xf numFmtId="0"/><xf numFmtId="22" applyNumberFormat="1"/></cellXfs></styleSheet>"""


def workbook(rows: list[list[Cell]]) -> bytes:
    """The bytes of an .xlsx file with these rows."""
    body = "".join(
        f'<row r="{number}">'
        + "".join(_cell(f"{chr(65 + at)}{number}", cell) for at, cell in enumerate(row))
        + "</row>"
        for number, row in enumerate(rows, 1)
    )
    sheet = f'<worksheet xmlns="{_NS}/spreadsheetml/2006/main"><sheetData>{body}</sheetData></worksheet>'
    files = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _ROOT,
        "xl/workbook.xml": _BOOK,
        "xl/_rels/workbook.xml.rels": _PARTS,
        "xl/styles.xml": _STYLES,
        "xl/worksheets/sheet1.xml": sheet,
    }
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)
    return out.getvalue()


def _cell(place: str, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
    if isinstance(cell, datetime):
        days = (cell - datetime(1899, 12, 30)).total_seconds() / 86_400
        return f'<c r="{place}" s="1"><v>{days!r}</v></c>'
    return f'<c r="{place}"><v>{cell}</v></c>'
