"""The pinned source distribution that is built, and the flags that every profile shares."""

VERSION = "0.3.36"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
LLAMA_COMMIT = "0c1e57098"  # the commit vendored in that source distribution

INFO_FILE = "llama_cpp/unpaced_build.json"
LICENSE_FILE = "llama_cpp/llama.cpp-LICENSE"
# Compiled files with parts by others, whose notices the license file repeats.
FILES_OF_OTHERS = ("ggml/src/ggml-cpu/llamafile/sgemm.cpp", "ggml/src/ggml-cpu/ops.cpp")

COMMON_DEFINES: dict[str, str] = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_PLATFORM_NO_VERSIONED_SONAME": "ON",
    # The build tree lies inside a git checkout, ours. With git found and no explicit commit,
    # llama.cpp and ggml would record our HEAD as their own version.
    "LLAMA_BUILD_COMMIT": LLAMA_COMMIT,
    "GGML_BUILD_COMMIT": LLAMA_COMMIT,
    "GIT_EXE": "",
    "LLAVA_BUILD": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "UNPACED_RUN_PATH": "$ORIGIN",  # where the libraries look for each other, see PATCHES
    "GGML_CCACHE": "OFF",  # we set the compiler launcher ourselves, for all targets
}

CUDA_DEFINES: dict[str, str] = {
    # The host's half of its .cu files launches kernels and does little else, but -O3 takes a tenth
    # of their compilers' time for it. What the card runs is the same, byte for byte.
    "CMAKE_CUDA_FLAGS_RELEASE": "-O1 -DNDEBUG",
    # A function of the driver that cuda_driver.c lacks ends the build, not a server's start.
    "CMAKE_SHARED_LINKER_FLAGS": "-Wl,-z,defs",
}

# llama.cpp's own install rules would add a second copy of everything.
WHEEL_EXCLUDE = "lib/*;include/*;bin/*"
LIBRARIES = ("libggml-base.so", "libggml.so", "libllama.so")

# Left out when unpacking: three quarters of the archive, and nothing that is compiled.
NOT_UNPACKED = (
    r"(\.git|\.github|docs|examples|vendor/llama\.cpp/(docs|models|benches|tests|media))(/|$)"
)

# (file, pattern, replacement); each pattern must match exactly once.
PATCHES: tuple[tuple[str, str, str], ...] = (
    # CUDA's libraries are found where its packages, or the system's toolkit, have them.
    (
        "CMakeLists.txt",
        r'(        else\(\)\n.*\n                INSTALL_RPATH ")\$ORIGIN"',
        r'\1${UNPACED_RUN_PATH}"',
    ),
    # llama-common is not shipped: its C++ interface is unstable, and it doubles the build time.
    ("CMakeLists.txt", r"LLAMA_BUILD_COMMON ON CACHE", "LLAMA_BUILD_COMMON OFF CACHE"),
    # This rule installs into the source tree, where the next profile's wheel would pick it up.
    (
        "CMakeLists.txt",
        r"    if\(NOT EMSCRIPTEN\)\n        install\((?:.|\n)*?\n        \)\n    endif\(\)\n",
        "",
    ),
    # Its list of libraries lacks those for single sets of instructions (GGML_CPU_ALL_VARIANTS).
    (
        "CMakeLists.txt",
        r"    llama_cpp_python_install_target\(ggml-cpu\)\n",
        "    foreach(backend ${GGML_AVAILABLE_BACKENDS})\n"
        "        if(backend MATCHES ggml-cpu)\n"
        "            llama_cpp_python_install_target(${backend})\n"
        "        endif()\n"
        "    endforeach()\n",
    ),
    # GCC before 12.4 and 13.3 thinks that _tile_loadconfig reads 8 bytes of the configuration and
    # drops the stores to the other 56 (GCC bug 114098): the first prompt ended the process on
    # processors with AMX.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        r"    _tile_loadconfig\(&tc\);\n",
        '    __asm__ volatile("ldtilecfg %0" ::"m"(tc));\n',
    ),
    # Recurrent layers give a product its rows in three dimensions, a slice for each sequence. AMX's
    # kernels looked for slices in the weights, too, and took a slice's offset in bytes for one in
    # values: a second sequence ended the process, or got another's numbers. As all is contiguous
    # (supports_op asks) and the weights have two dimensions, the slices are one matrix.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        r"    const int M = dst->ne\[1\];\n(    const int N = dst->ne\[0\];\n(?:.*\n){3})"
        r"    const int64_t ne2 = dst->ne\[2\];\n"
        r"    const int64_t n_batch = ne2 \* dst->ne\[3\];\n",
        r"    const int M = ggml_nrows(dst);\n\1"
        r"    const int64_t ne2 = 1;\n    const int64_t n_batch = 1;\n",
    ),
    # Weights of three dimensions (multi-head latent attention has some) are not for it: memory is
    # taken for their first matrix alone, and no other is rearranged. Ordinary kernels take them.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/amx.cpp",
        r"        if \(!ggml_is_contiguous\(src0\) \|\| !ggml_is_contiguous\(src1\)\) \{\n",
        "        if (!ggml_is_contiguous(src0) || !ggml_is_contiguous(src1) ||\n"
        "            ggml_n_dims(src0) != 2) {\n",
    ),
    # Places in rearranged weights were counted in 32 bits: a matrix of more than 2 GiB (an output
    # layer of 256000 tokens and 12288 values) ended the process at its end.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        r"\(n \* KB \+ k\) \* tile_size\n",
        "((size_t) (n) * (KB) + (k)) * (tile_size)\n",
    ),
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        r"src0_offset \+ nb_start \* K,",
        "src0_offset + (size_t) nb_start * K,",
    ),
    # 32 rows times weights of 32 columns, a single block of Q4_0, Q4_1 or Q8_0 (the time steps of a
    # Mamba model): the product was added to whatever stood in the result's memory. The branch for
    # fewer rows has it right.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        r"    if \(M == 2 \* TILE_M\) \{\n",
        "    if (M == 2 * TILE_M && KB > 1) {\n",
    ),
    # With AVX512-FP16 the values of attention are added 128 at a time and what is left of a head
    # one by one: all of it where heads have 64. At 768 tokens the demo model decoded at 0.4 of the
    # speed that it has with AVX2. Without, AVX-512 takes 16 at a time.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/simd-mappings.h",
        r"#if defined\(__AVX512FP16__\)\n\n#define GGML_F16_STEP 128\n",
        "#if 0  // AVX512-FP16\n\n#define GGML_F16_STEP 128\n",
    ),
    # Ten files that take a tenth of the compiler's time: attention without tensor cores. Every card
    # that CUDA 13 serves has them, and ggml_cuda_get_best_fattn_kernel takes the tile kernel there
    # for heads of 40 and 72 alone. On AMD's cards it takes it for others too.
    (
        "vendor/llama.cpp/ggml/src/ggml-cuda/CMakeLists.txt",
        r'"template-instances/fattn-tile\*\.cu"',
        '"template-instances/fattn-tile-instance-dkq40-*.cu"\n'
        '                "template-instances/fattn-tile-instance-dkq72-*.cu"',
    ),
    (
        "vendor/llama.cpp/ggml/src/ggml-cuda/fattn-tile.cu",
        r"(        case  64: \{\n(?:.*\n)*?)(        case  72: \{\n)",
        r"#if defined(GGML_USE_HIP) || defined(GGML_USE_MUSA)\n\1#endif\n\2",
    ),
    (
        "vendor/llama.cpp/ggml/src/ggml-cuda/fattn-tile.cu",
        r"(        case  80: \{\n(?:.*\n)*?)(        default: \{\n)",
        r"#if defined(GGML_USE_HIP) || defined(GGML_USE_MUSA)\n\1#endif\n\2",
    ),
    # Eight of attention's kernels were compiled twice, in the file that chooses among them as well:
    # nothing declared them there.
    (
        "vendor/llama.cpp/ggml/src/ggml-cuda/fattn-mma-f16.cuh",
        r"(// For GLM 4\.7 Flash\n)",
        "".join(
            f"extern DECL_FATTN_MMA_F16_CASE({case});\n"
            for case in (
                *("192, 128, 1, 8", "192, 128, 2, 8", "192, 128, 4, 8", "192, 128, 8, 8"),
                *("192, 128, 1, 16", "192, 128, 2, 16", "192, 128, 4, 16", "576, 512, 2, 4"),
            )
        )
        + r"\1",
    ),
    # Most of a file's time goes to the headers that it has in common with the others, a tenth of
    # that of templates' instances. So they are compiled in groups, for which three headers lack a
    # guard. The largest are long enough by themselves, and one has names that another has, too.
    *(
        (f"vendor/llama.cpp/ggml/src/ggml-cuda/fattn-{it}.cuh", r"\A", "#pragma once\n")
        for it in ("mma-f16", "tile", "vec")
    ),
    (
        "vendor/llama.cpp/ggml/src/ggml-cuda/CMakeLists.txt",
        r"(    ggml_add_backend_library\(ggml-cuda\n(?:.*\n)*?\s*\)\n)",
        r"\1"
        "    set(size_of_mmf 4)\n"
        "    set(size_of_mmq 3)\n"
        "    set(size_of_fattn-mma 3)\n"
        "    set(size_of_fattn-tile 2)\n"
        "    set(size_of_fattn-vec 4)\n"
        "    set(size_of_others 8)\n"
        "    foreach(source ${GGML_SOURCES_CUDA})\n"
        '        file(SIZE "${source}" bytes)\n'
        '        if(source MATCHES "template-instances/(mmf|mmq|fattn-[a-z]+)-")\n'
        "            set(group ${CMAKE_MATCH_1})\n"
        '        elseif(bytes LESS 50000 AND NOT source MATCHES "conv2d-dw")\n'
        "            set(group others)\n"
        "        else()\n"
        "            continue()\n"
        "        endif()\n"
        "        list(APPEND files_of_${group} ${source})\n"
        "        list(LENGTH files_of_${group} n)\n"
        '        math(EXPR number "(${n} - 1) / ${size_of_${group}}")\n'
        "        set_source_files_properties(${source}\n"
        "                                    PROPERTIES UNITY_GROUP ${group}_${number})\n"
        "    endforeach()\n"
        "    set_target_properties(ggml-cuda PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)\n"
        "    # It compares and launches graphs for each token of the host's loop.\n"
        "    set_source_files_properties(ggml-cuda.cu PROPERTIES COMPILE_OPTIONS -O3)\n",
    ),
    # So does most of llama.cpp's own: it has groups for its models alone.
    (
        "vendor/llama.cpp/src/CMakeLists.txt",
        r"# exclude non-model sources from unity build\n"
        r"set_source_files_properties\((?:.*\n)*?.*\)\n",
        "set_target_properties(llama PROPERTIES UNITY_BUILD_MODE GROUP)\n"
        "set(size_of_CORE 6)\n"
        "set(size_of_MODELS 16)\n"
        "foreach(group CORE MODELS)\n"
        "    set(n 0)\n"
        "    foreach(source ${LLAMA_${group}_SOURCES})\n"
        '        math(EXPR number "${n} / ${size_of_${group}}")\n'
        '        math(EXPR n "${n} + 1")\n'
        "        set_source_files_properties(${source}\n"
        "                                    PROPERTIES UNITY_GROUP ${group}_${number})\n"
        "    endforeach()\n"
        "endforeach()\n",
    ),
    # The CPU backend takes its work buffer with new[], which promises 16 bytes. Attention's
    # accumulator lies in it and is read and written for every cell of the KV cache: where it
    # crosses the end of a page, by luck of the addresses, a prompt takes twice as long
    # (docs/bench/prefix.md).
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/ggml-cpu.cpp",
        r"    uint8_t \*           work_data;\n",
        "    struct alignas(64) cache_line { uint8_t bytes[64]; };\n    cache_line * work_data;\n",
    ),
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/ggml-cpu.cpp",
        r"cpu_ctx->work_data = new uint8_t\[cplan\.work_size\];",
        "cpu_ctx->work_data = new ggml_backend_cpu_context::cache_line[cplan.work_size / 64 + 1];",
    ),
)
