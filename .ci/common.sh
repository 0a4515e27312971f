# Sourced by the scripts of this folder: where things are, and the few steps they share.
set -euo pipefail
exec </dev/null
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1 DEBIAN_FRONTEND=noninteractive

# Everything made on the way. .ci/run makes one folder for all steps; a script called alone makes its own,
# unless CI_WORK names one to keep.
clean_up() { :; }
if [ -z "${CI_WORK:-}" ]; then
    CI_WORK=$(mktemp -d)
    export CI_WORK
    clean_up() { rm -rf "$CI_WORK"; }
fi
trap clean_up EXIT
mkdir -p "$CI_WORK"

# venv NAME [PIP ARGUMENT ...]: a fresh environment in $CI_WORK/NAME, once.
venv() {
    local name=$1
    shift
    [ -e "$CI_WORK/$name/ready" ] && return
    rm -rf "${CI_WORK:?}/$name"
    "${PYTHON:-python3}" -m venv "$CI_WORK/$name"
    "$CI_WORK/$name/bin/python" -m pip install -qq "$@"
    touch "$CI_WORK/$name/ready"
}

# sdist: the path of the source distribution, built once from the checkout.
sdist() {
    [ -e "$CI_WORK/dist" ] || .ci/build >&2
    echo "$CI_WORK"/dist/*.tar.gz
}

# installed: the wheel with its test extra in the environment `installed`.
installed() {
    sdist >/dev/null
    venv installed "fdwait[test] @ file://$(echo "$CI_WORK"/dist/*.whl)"
}

# variant NAME: the same, built from the source distribution with what FDWAIT_CFLAGS, FDWAIT_LDFLAGS and
# FDWAIT_WITH_KQUEUE say.
variant() {
    venv "$1" --no-cache-dir "fdwait[test] @ file://$(sdist)"
}

# copy_tree FOLDER [PATHSPEC ...]: copies what git knows or would take.
copy_tree() {
    rm -rf "$1"
    mkdir "$1"
    git ls-files -z --cached --others --exclude-standard -- "${@:2}" | tar --null -T - -cf - | tar -xf - -C "$1"
}

# suite NAME [PYTEST ARGUMENT ...]: README's test command in environment NAME, in a copy of the tree without the
# package, so that what is tested is what is installed. Shells start what runs beside them with SIGINT ignored, which
# Ctrl-C in the tests is not meant to be.
suite() {
    local python=$CI_WORK/$1/bin/python folder
    shift
    folder=$(mktemp -d -p "$CI_WORK")
    copy_tree "$folder" . ':!src'
    (cd "$folder" && env --default-signal=INT "$python" -m pytest tests "$@")
}

# zig_cc TARGET: sets ZIG_CC to the command of a C compiler for it.
zig_cc() {
    venv zig ziglang
    export ZIG_GLOBAL_CACHE_DIR=$CI_WORK/zig-cache
    ZIG_CC="$(echo "$CI_WORK"/zig/lib/python*/site-packages/ziglang/zig) cc -target $1"
}

# core_sources linux|bsd|linux-kqueue: the C files of the core there, as ffi_build.py has them.
core_sources() {
    case $1 in
    linux) ls csrc/*.c | grep -vE '/(kqueue|os_bsd)\.c$' ;;
    bsd) ls csrc/*.c | grep -vE '/(epoll|os_linux)\.c$' ;;
    linux-kqueue) ls csrc/*.c | grep -vE '/(epoll|os_bsd)\.c$' ;;
    esac
}

# c_program PROGRAM FLAG-OR-FILE ...: compiles into $CI_WORK/PROGRAM, and runs it.
c_program() {
    local program=$CI_WORK/$1
    shift
    gcc -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -Icsrc "$@" -lm -lpthread -o "$program"
    "$program"
}
