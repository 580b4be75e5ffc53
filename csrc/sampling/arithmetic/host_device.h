// Marks the sampling arithmetic that compiles for the host and for CUDA alike.
//
// Rules of the headers that use it: no exceptions, no allocation, no standard containers or
// algorithms, memory comes from the caller. Products must not be fused with sums, or sampled tokens
// differ from llama.cpp's: compile with -ffp-contract=off (g++) and --fmad=false (nvcc).
#pragma once

#if defined(__CUDACC__)
#define UNPACED_HD __host__ __device__
#else
#define UNPACED_HD
#endif
