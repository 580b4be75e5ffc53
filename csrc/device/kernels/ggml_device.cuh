// ggml-cuda's device functions, of commit 0c1e57098: reductions, block formats, casts, activations.
// Our kernels call them where their bits hang on them.
#pragma once

#include "ggml-cuda/common.cuh"
#include "ggml-cuda/convert.cuh"
#include "ggml-cuda/unary.cuh"
