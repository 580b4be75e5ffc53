#!/bin/sh
# aarch64_check.sh: compiles llama.cpp and the engine for 64-bit ARM on another machine and runs the C++ tests under
# QEMU. It needs Debian's g++-aarch64-linux-gnu and qemu-user-static, and `make build` done before; 20 minutes of CPU.
# QEMU orders memory as the machine below it does: on x86-64 this says nothing about the weak order of an ARM.
set -eu
cd "$(dirname "$0")/.."
triple=aarch64-linux-gnu
source=$(echo "$PWD"/.build/src/llama_cpp_python-*/vendor/llama.cpp)
build=$PWD/.build/aarch64
export PATH="$PWD/.venv/bin:$PATH"
launcher=$(command -v ccache || true)

configure() { # configure SOURCE FOLDER OPTION...
  from=$1 to=$2
  shift 2
  cmake -S "$from" -B "$to" -G Ninja \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=$triple-gcc -DCMAKE_CXX_COMPILER=$triple-g++ \
    -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
    -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64-static;-L;/usr/$triple" "$@"
}

# Neoverse N1 and later, hence Grace and DGX Spark, have these instructions.
configure "$source" "$build/llama" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF \
  -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16 -DGGML_OPENMP=OFF -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON -DGIT_EXE= \
  -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
cmake --build "$build/llama" --target llama
# As `make test` compiles them: with -O3 GCC 12 warns of an overlap where there is none.
configure csrc "$build/tests" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DUNPACED_NATIVE=OFF -DUNPACED_BUILD_PYTHON=OFF \
  -DUNPACED_BUILD_TESTS=ON -DUNPACED_LLAMA_SRC="$source" -DUNPACED_LLAMA_LIB="$build/llama/bin"
cmake --build "$build/tests"
# Left out: under QEMU these five compute for longer than the tests wait. Tests that start themselves again need the
# kernel to start ARM programs through QEMU (binfmt_misc).
left_out='scarce_cells_test|kept_state_test|state_move_test|state_move_trouble_test|computed_state_test'
export QEMU_LD_PREFIX=/usr/$triple
if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
  echo "No binfmt_misc for QEMU here: without ring_test and abort_hold_test."
  left_out="$left_out|ring_test|abort_hold_test"
fi
ctest --test-dir "$build/tests" --output-on-failure -E "^($left_out)\$" "$@"
