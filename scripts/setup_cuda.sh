#!/bin/sh
# setup_cuda.sh
#
# Makes sure that nvcc, cuBLAS, cuSOLVER and NCCL are there for `make cuda` and
# `make wheel`. If the toolkit, the system or python3 has them it changes
# nothing; what is missing comes from PyPI into build-cuda/pypi.
# cmake/cuda.cmake looks in the same places. CANZONA_NVCC=pypi leaves out a
# toolkit that is there. CUDNN=1 also gets the headers of cuDNN and of its
# frontend, into build-cuda/cudnn: without them `train` has plain attention.
set -eu
cd "$(dirname "$0")/.."
target=build-cuda/pypi

# Made for CUDA 13.0: drivers of 13.0 do not load PTX of a newer nvcc. The
# compiler's are of one release.
compiler="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85"
# cuSOLVER itself needs all of its line.
cublas="nvidia-cublas==13.0.2.14"
cusolver="nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 $cublas
  nvidia-nvjitlink==13.0.88"
nccl="nvidia-nccl-cu13==2.27.7"
cudnn="nvidia-cudnn-cu13==9.19.0.56 nvidia-cudnn-frontend==1.16.0"

fail() {
  echo "setup: $1" >&2
  exit 1
}

find_nvcc() {
  if [ "${CANZONA_NVCC:-}" = pypi ]; then
    own_nvcc
  elif [ -n "${CUDACXX:-}" ]; then
    command -v "$CUDACXX"
  elif ! command -v nvcc; then
    for folder in /usr/local/cuda /usr/local/cuda-*; do
      if [ -x "$folder/bin/nvcc" ]; then
        echo "$folder/bin/nvcc"
        return
      fi
    done
    own_nvcc
  fi
}

# The one that this script has installed.
own_nvcc() {
  own=$PWD/$target/nvidia/cu13/bin/nvcc
  [ ! -x "$own" ] || echo "$own"
}

# The toolkit's folder, which nvcc knows though it may be called by a script.
toolkit() {
  dirname "$("$nvcc" --dryrun -x cu /dev/null 2>&1 |
    sed -n 's/^#\$ _HERE_=//p')"
}

# Folders that may hold include/ and lib/.
prefixes() {
  [ -z "$nvcc" ] || toolkit
  echo /usr
  for package in "$target/nvidia" $(python3 -c \
    'import nvidia; print(*nvidia.__path__)' 2>/dev/null); do
    echo "$package/cu13"
    echo "$package/nccl"
  done
}

# has <header> <library>: both under one prefix.
has() {
  for prefix in $(prefixes); do
    [ -e "$prefix/include/$1" ] || continue
    for file in "$prefix"/lib64/"$2".so* "$prefix"/lib/"$2".so* \
      "$prefix"/lib/*-linux-gnu/"$2".so*; do
      [ -e "$file" ] && return 0
    done
  done
  return 1
}

has_cublas() {
  has cublas_v2.h libcublas && has cublasLt.h libcublasLt
}
has_cusolver() {
  has cusolverDn.h libcusolver
}
# 2.27.7 or newer, as cmake/cuda.cmake wants it.
has_nccl() {
  for prefix in $(prefixes); do
    version=$(sed -n 's/^#define NCCL_VERSION_CODE *//p' \
      "$prefix/include/nccl.h" 2>/dev/null)
    [ "${version:-0}" -ge 22707 ] || continue
    for file in "$prefix"/lib64/libnccl.so* "$prefix"/lib/libnccl.so* \
      "$prefix"/lib/*-linux-gnu/libnccl.so*; do
      [ -e "$file" ] && return 0
    done
  done
  return 1
}

# pip replaces the folder that these packages share, so all that nobody else
# has is installed at once, and takes the place of what was there when done.
install_missing() {
  old=$target
  target=$target.new
  rm -rf "$target"
  packages=""
  case $nvcc in "" | "$PWD/$old"/*) nvcc="" packages=$compiler ;; esac
  has_cublas || packages="$packages $cublas"
  has_cusolver || packages="$packages $cusolver"
  has_nccl || packages="$packages $nccl"
  # shellcheck disable=SC2086  # a list of words
  packages=$(printf '%s\n' $packages | sort -u)
  # shellcheck disable=SC2086
  echo "setup: installing" $packages "into $old"
  # shellcheck disable=SC2086
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --no-deps \
    --no-cache-dir --retries 1 --timeout 30 --target "$target" $packages ||
    return 1
  # nvcc tells the linker of lib64.
  [ ! -d "$target/nvidia/cu13/lib" ] || ln -s lib "$target/nvidia/cu13/lib64"
  rm -rf "$old" && mv "$target" "$old"
  target=$old
  [ -n "$nvcc" ] || nvcc=$(own_nvcc)
}

nvcc=$(find_nvcc) || fail "CUDACXX=$CUDACXX is not there"
if [ -z "$nvcc" ]; then
  install_missing && [ -n "$nvcc" ] ||
    fail "there is no nvcc on the PATH or in /usr/local/cuda*/bin, and PyPI's
       cannot be installed; install the CUDA toolkit, or name it with
       CUDACXX=/path/to/nvcc"
fi
if ! has_cublas || ! has_cusolver; then
  "$nvcc" --version | grep -q 'release 13\.' ||
    fail "$nvcc is not of CUDA 13 and has no cuBLAS or cuSOLVER beside it, and
       those on PyPI are for 13; install the toolkit's own"
  install_missing ||
    fail "please install cuBLAS and cuSOLVER of the CUDA toolkit, or pip"
elif ! has_nccl; then
  # Only training on several GPUs needs it.
  install_missing || echo "setup: no NCCL; the build goes on without it"
fi

# Headers alone: the library itself, some 500 MB, is loaded from wherever the
# system or python3 has it.
fetch_cudnn_headers() {
  wheels=build-cuda/cudnn.new
  rm -rf "$wheels"
  # shellcheck disable=SC2086  # a list of words
  echo "setup: fetching the headers of" $cudnn
  # shellcheck disable=SC2086
  python3 -m pip download -q --no-deps --no-cache-dir --dest "$wheels" $cudnn &&
    python3 scripts/unpack_headers.py "$wheels" build-cuda/cudnn/include ||
    fail "the headers of cuDNN cannot be fetched"
  rm -rf "$wheels"
}
if [ "${CUDNN:-}" = 1 ] && [ ! -e build-cuda/cudnn/include/cudnn.h ]; then
  fetch_cudnn_headers
fi
