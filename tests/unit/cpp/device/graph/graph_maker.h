// Graphs made by hand, of tensors without memory but what a test gives them.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "device/graph/step_graph.h"

namespace unpaced::test {

inline constexpr std::int64_t kValues = 64;

class GraphMaker {
 public:
  ggml_context* context() { return context_.get(); }

  ggml_tensor* weight(std::int64_t rows, ggml_type type = GGML_TYPE_Q8_0) {
    return rows == 1 ? ggml_new_tensor_1d(context(), GGML_TYPE_F32, kValues)
                     : ggml_new_tensor_2d(context(), type, kValues, rows);
  }

  ggml_tensor* activation() {
    ggml_tensor* made = ggml_new_tensor_1d(context(), GGML_TYPE_F32, kValues);
    ggml_set_input(made);
    return made;
  }

  ggml_tensor* normed(ggml_tensor* x) {
    return ggml_mul(context(), ggml_rms_norm(context(), x, 1e-5F), weight(1));
  }

  ggml_tensor* product(ggml_tensor* x, std::int64_t rows = kValues) {
    return ggml_mul_mat(context(), weight(rows), x);
  }

  StepGraph graph(std::initializer_list<ggml_tensor*> outputs) {
    ggml_cgraph* made = ggml_new_graph(context());
    for (ggml_tensor* output : outputs) ggml_build_forward_expand(made, output);
    return StepGraph({ggml_graph_nodes(made), ggml_graph_nodes(made) + ggml_graph_n_nodes(made)});
  }

 private:
  struct Freed {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  std::unique_ptr<ggml_context, Freed> context_{ggml_init({std::size_t{4} << 20U, nullptr, true})};
};

}  // namespace unpaced::test
