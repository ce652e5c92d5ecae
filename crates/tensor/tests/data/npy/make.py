"""Makes the files in this folder: python3 make.py (NumPy, and ml_dtypes for bfloat16).

Every numeric array has shape (2, 3) and element i is i; complex ones have the imaginary part -i.
"""

import numpy as np

NUMERIC = "?1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
WORDS = np.array([["a", "", "höhe"], ["日本", "x\0y", "zz"]])


def numbers(dtype):
    array = np.arange(6).reshape(2, 3)
    if np.dtype(dtype).kind == "c":
        array = array - 1j * array
    return array.astype(dtype)


def save(name, array, version=(1, 0)):
    with open(name + ".npy", "wb") as f:
        np.lib.format.write_array(f, array, version=version, allow_pickle=False)


for code in NUMERIC:
    dtype = np.dtype("?" if code == "?1" else code)
    name = dtype.name
    save(name, numbers(dtype))
    save(name + "_fortran", np.asfortranarray(numbers(dtype)))
    if dtype.itemsize > 1:
        save(name + "_big", numbers(dtype.newbyteorder(">")))
save("int32_big_fortran", np.asfortranarray(numbers(">i4")))
save("int32_v2", numbers("i4"), (2, 0))
save("int32_v3", numbers("i4"), (3, 0))
save("scalar", np.array(7, "i4"))
save("vector", np.arange(5, dtype="i8"))
save("empty", np.zeros((0, 3), "f4"))
save("rank5_fortran", np.asfortranarray(np.arange(120, dtype="i4").reshape(1, 2, 3, 4, 5)))
save("unicode", WORDS)
save("unicode_big", WORDS.astype(WORDS.dtype.newbyteorder(">")))
save("unicode_fortran", np.asfortranarray(WORDS))
save("bytes", np.char.encode(WORDS, "utf-8"))
save("records", np.zeros(2, [("a", "i4"), ("b", "f4")]))
save("datetime", np.zeros(2, "M8[s]"))

import ml_dtypes

save("bfloat16", numbers(ml_dtypes.bfloat16))
save("float8", numbers(ml_dtypes.float8_e5m2))
