from __future__ import annotations

import pytest

from dovetail.pipeline.size import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128MiB", 128 * 1024**2),
        ("64MB", 64_000_000),
        ("1GiB", 1024**3),
        ("1.5 GiB", 3 * 1024**3 // 2),
        ("2gb", 2_000_000_000),
        ("512B", 512),
        ("512", 512),
        (" 1KiB ", 1024),
        ("1TiB", 1024**4),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("128M", "'128M' has an unknown unit; write 128MiB"),
        ("128Mi", "'128Mi' has an unknown unit; write 128MiB"),
        ("3x", "'3x' has an unknown unit; write 3MiB"),
        ("lots", "'lots' is not a size; write a number and a unit, e.g. 128MiB"),
        ("-1MiB", "'-1MiB' is not a size; write a number and a unit, e.g. 128MiB"),
        ("", "'' is not a size; write a number and a unit, e.g. 128MiB"),
        ("1e3", "'1e3' is not a size; write a number and a unit, e.g. 128MiB"),
        ("0.0001KiB", "'0.0001KiB' is not a whole number of bytes; write e.g. 128MiB"),
    ],
)
def test_what_is_no_size_is_told_with_a_cure(text: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        parse_size(text)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("size", "text"),
    [(128 * 1024**2, "128MiB"), (3 * 1024**3, "3GiB"), (1500, "1,500 bytes"), (0, "0 bytes")],
)
def test_a_size_is_shown_exactly(size: int, text: str) -> None:
    assert format_size(size) == text
