// llama.cpp's internal headers, of commit 0c1e57098: included here alone, and this by
// llama_inside.cuh and llama_checks.cuh alone.
#pragma once

// llama.cpp's classes keep to themselves what an own decode graph needs. The standard headers come
// first, so that the access is opened for llama.cpp's own classes only.
#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#define private public
#define protected public
#include "llama-batch.h"
#include "llama-context.h"
#include "llama-graph.h"
#include "llama-kv-cache.h"
#include "llama-model.h"
#undef private
#undef protected
#include "ggml-backend-impl.h"
#include "ggml-cuda.h"
#include "ggml-cuda/common.cuh"
#include "ggml-impl.h"
