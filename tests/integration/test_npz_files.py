"""Our reader and writer of .npz against numpy: npz_tool reads by the one and writes by the other."""
import subprocess

import numpy
import pytest

import harness

TOOL = harness.BUILD / "tests" / "npz_tool"


@pytest.fixture(scope="module", autouse=True)
def built():
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built")


def run(*args):
    return subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, check=False,
                          timeout=60 * harness.SCALE)


ARRAYS = {
    "floats": numpy.random.default_rng(1).normal(size=(5, 3, 2)).astype(numpy.float32),
    "special": numpy.array([numpy.nan, numpy.inf, -0.0, 1e-45], numpy.float32),
    "bytes": numpy.arange(256, dtype=numpy.uint8).reshape(2, 128),
    "ints": numpy.array([[-2 ** 31, 2 ** 31 - 1]], numpy.int32),
    "longs": numpy.array([-2 ** 63, 2 ** 63 - 1], numpy.int64),
    "scalar": numpy.array(3.5, numpy.float32),
    "counter": numpy.array(-7, numpy.int64),
    "empty": numpy.zeros((0, 4), numpy.float32),
    "deep": numpy.arange(256, dtype=numpy.int32).reshape(2, 2, 2, 2, 2, 2, 2, 2),
    "layer.weight": numpy.ones((1, 1), numpy.float32),
    "größe": numpy.ones(3, numpy.float32),
    "big": numpy.random.default_rng(2).integers(0, 256, 30_000_000, numpy.uint8),
}


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_arrays_come_back_from_numpy_and_to_numpy(tmp_path, save):
    save(tmp_path / "in.npz", **ARRAYS)
    done = run(tmp_path / "out.npz", tmp_path / "in.npz", *ARRAYS)
    assert done.returncode == 0, done.stderr
    with numpy.load(tmp_path / "out.npz", allow_pickle=False) as file:
        assert file.files == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert file[name].dtype == array.dtype and file[name].shape == array.shape
            assert file[name].tobytes() == array.tobytes(), name


def test_doubles_are_read(tmp_path):
    x = numpy.random.default_rng(3).normal(size=(4, 5))
    numpy.savez(tmp_path / "in.npz", x=x)
    assert run(tmp_path / "out.npz", tmp_path / "in.npz", "x").returncode == 0
    assert numpy.load(tmp_path / "out.npz")["x"].view(numpy.float64).tobytes() == x.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path, version):
    import zipfile
    x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        with archive.open("x.npy", "w") as file:
            numpy.lib.format.write_array(file, x, version=version)
    done = run(tmp_path / "out.npz", tmp_path / "in.npz", "x")
    assert done.returncode == 0, done.stderr
    assert (numpy.load(tmp_path / "out.npz")["x"] == x).all()


@pytest.mark.parametrize("array,words", [
    (numpy.asfortranarray(numpy.ones((2, 3), numpy.float32)), "Fortran order"),
    (numpy.ones(3, ">f4"), "big-endian"),
    (numpy.ones(3, numpy.float16), "dtype other than"),
    (numpy.ones(3, bool), "dtype other than"),
    (numpy.ones(3, [("a", "<f4")]), "structured"),
    (numpy.array(["text"]), "dtype other than"),
    (numpy.array([{}], object), "dtype other than"),
    (numpy.ones((1,) * 9, numpy.float32), "more than 8 dims"),
])
def test_what_is_not_read_is_named(tmp_path, array, words):
    numpy.savez(tmp_path / "in.npz", x=array)
    done = run(tmp_path / "out.npz", tmp_path / "in.npz", "x")
    assert done.returncode == 1
    assert words in done.stderr and "in.npz" in done.stderr and "'x.npy'" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.npz"], "nothing is left behind"
