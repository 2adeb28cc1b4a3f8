"""What a worker process sends: few bytes, and every value back bit for bit, whatever was written into the arrays."""

from __future__ import annotations

import numpy as np
import pytest

from hds import _native

KINDS = {"int64": 8, "int32": 4, "float32": 4, "bool": 1}


def layout_of(shapes):
    """Entries (key, type, first word, shape) side by side, and the words they take."""
    layout, end = [], 0
    for key, (kind, shape) in shapes.items():
        layout.append((key, kind, end, list(shape)))
        end += -(-int(np.prod(shape)) * KINDS[kind] // 8)
    return layout, end


def array(words, entry):
    key, kind, start, shape = entry
    return words[start:].view(kind)[: int(np.prod(shape))].reshape(shape)


def there_and_back(words, layout) -> int:
    packed = _native.pack(words, layout)
    back = _native.unpack(packed)
    assert list(back) == [entry[0] for entry in layout]
    for entry in layout:
        sent, got = array(words, entry), back[entry[0]]
        assert got.dtype == sent.dtype and got.shape == sent.shape
        assert got.tobytes() == sent.tobytes(), entry[0]
    return len(packed)


def test_what_is_regular_takes_no_room():
    rows, length = 8, 512
    both = (rows, length)
    layout, end = layout_of(
        {
            "input_ids": ("int64", both),
            "labels": ("int64", both),
            "position_ids": ("int64", both),
            "loss_mask": ("bool", both),
        }
    )
    words = np.zeros(end, dtype=np.int64)
    inputs, labels, positions, mask = (array(words, entry) for entry in layout)
    tokens = np.arange(rows * (length + 1)).reshape(rows, -1) ** 2 % 50_000
    inputs[:], labels[:], positions[:], mask[:] = tokens[:, :-1], tokens[:, 1:], np.arange(length), True
    regular = 2 * inputs.size + 600
    assert there_and_back(words, layout) < regular
    # What a user wrote into the arrays comes along.
    labels[2, :9], positions[5, 100:], mask[3, 7] = -100, np.arange(length - 100), False
    assert there_and_back(words, layout) < regular + 400
    labels[:] = inputs
    assert there_and_back(words, layout) < regular + 400
    labels *= -3
    mask[:, ::2] = False
    there_and_back(words, layout)


def test_any_values_come_back():
    shapes = {
        "input_ids": ("int64", (2, 3)),
        "labels": ("int64", (2, 3)),
        "domain_ids": ("int64", (2,)),
        "sample_ids": ("int64", (2, 2)),
        "cu_seqlens": ("int32", (3,)),
        "mtld": ("float32", (2,)),
        "loss_mask": ("bool", (2, 3)),
    }
    layout, end = layout_of(shapes)
    random = np.random.default_rng(1)
    extremes = np.array([0, 1, -1, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)])
    for _ in range(300):
        words = random.integers(0, 2 ** random.integers(1, 63), end) * random.choice([1, -1])
        words[random.integers(0, 12)] = random.choice(extremes)
        array(words, layout[-1])[:] = random.integers(0, 2, (2, 3))
        there_and_back(words, layout)
    there_and_back(np.zeros(0, dtype=np.int64), [])


def test_a_part_of_the_arrays_can_go():
    layout, end = layout_of({"input_ids": ("int64", (2, 3)), "labels": ("int64", (2, 3)), "mtld": ("float32", (3,))})
    there_and_back(np.arange(end), layout[1:])


def test_damaged_bytes_are_refused():
    layout, end = layout_of({"input_ids": ("int64", (2, 3)), "loss_mask": ("bool", (2, 3))})
    words = np.array([1, 2, 70_000, 4, 5, 6, 0x0001_0101_0101])
    packed = _native.pack(words, layout)
    for length in range(len(packed)):
        with pytest.raises(ValueError, match="damaged"):
            _native.unpack(packed[:length])
    for place in range(len(packed)):
        changed = bytearray(packed)
        changed[place] ^= 0xFF
        try:
            _native.unpack(bytes(changed))
        except ValueError:
            pass


def test_a_wrong_layout_is_refused():
    words = np.zeros(4, dtype=np.int64)
    for layout in ([("input_ids", "int64", 2, [3])], [("other", "int64", 0, [1])], [("mtld", "int8", 0, [1])]):
        with pytest.raises(ValueError):
            _native.pack(words, layout)
