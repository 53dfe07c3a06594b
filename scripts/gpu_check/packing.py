"""Makes a folder, or an archive of one, with the programs of gpu-check, for a machine without a compiler."""
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

MARK = "made-by-gpu-check"
PROGRAMS = ["tests/gpu_tests", "bin/ddp-bench", "bin/ddp-check", "bin/ddprun", "bin/ddprun-guard", "bin/train"]
TARGETS = [pathlib.Path(name).name for name in PROGRAMS]
OF_THE_MACHINE = ("libc.so.", "libm.so.", "libpthread.so.", "libdl.so.", "librt.so.", "ld-linux")  # as the driver is
OF_THE_COMPILER = ("libstdc++.so.", "libgcc_s.so.")  # for a machine whose own are older


ARCHIVE = ".tar.xz"


def may_replace(target):
    if target.name.endswith(ARCHIVE):
        return True
    return (target / MARK).exists() or not target.exists() or not any(target.iterdir())


def pack(build, target):
    """Packs the programs of a build folder into a folder, or into an archive whose name ends in .tar.xz."""
    if not target.name.endswith(ARCHIVE):
        if target.exists():
            shutil.rmtree(target)
        fill(build, target)
    else:
        with tempfile.TemporaryDirectory() as folder, tarfile.open(target, "w:xz", preset=3) as archive:
            fill(build, pathlib.Path(folder))
            archive.add(folder, arcname=".")
    files = target.rglob("*") if target.is_dir() else [target]
    megabytes = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
    print(f"{target}: {megabytes:.0f} MB, {', '.join(TARGETS)}")


def unpacked(target, folder):
    """Returns the folder of the packed programs: an archive is unpacked into `folder`."""
    if not target.name.endswith(ARCHIVE) or not target.exists():
        return target
    with tarfile.open(target) as archive:
        archive.extractall(folder)  # made by this script: its names are relative
    return pathlib.Path(folder)


def fill(build, folder):
    """Copies the programs to folder/bin, the libraries that they need to folder/lib, those of the compiler to folder/runtime."""
    for name in ("bin", "lib", "runtime"):
        (folder / name).mkdir(parents=True)
    (folder / MARK).touch()
    for name in PROGRAMS:
        subprocess.run(["strip", "-o", folder / "bin" / pathlib.Path(name).name, build / name], check=True)
    for name, path in sorted(libraries_of(folder / "bin")):
        if not name.startswith(OF_THE_MACHINE):
            shutil.copy(path, folder / ("runtime" if name.startswith(OF_THE_COMPILER) else "lib") / name)


def libraries_of(folder):
    """Returns (name, path) of the shared libraries that the programs in `folder` load at their start."""
    found = set()
    for program in folder.iterdir():
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            if arrow and rest.startswith("/"):
                found.add((name, rest.split()[0]))
    return found
