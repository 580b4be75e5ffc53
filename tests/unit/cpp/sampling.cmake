# Tests of the sampling core; CMakeLists.txt includes this.
set(sampling_sources
  infill.cpp logit_row.cpp logprobs.cpp repetition.cpp row_filters.cpp sampler.cpp
  vocabulary_kernels.cpp)
list(TRANSFORM sampling_sources PREPEND "${UNPACED_CSRC}/sampling/")

function(unpaced_sampling_test name)
  unpaced_cpp_test(${name} ${name}.cpp ${sampling_sources})
  # As in csrc/sampling/CMakeLists.txt: results must be llama.cpp's bit by bit.
  target_compile_options(${name} PRIVATE -O3 -ffp-contract=off)
endfunction()

unpaced_sampling_test(sampler_test)
unpaced_sampling_test(sampling_arithmetic_test)
unpaced_sampling_test(masked_draw_test)
target_sources(masked_draw_test PRIVATE "${UNPACED_CSRC}/reasoning_budget.cpp"
                                        "${UNPACED_CSRC}/token_mask.cpp"
                                        "${UNPACED_CSRC}/grammar/trigger_watch.cpp"
                                        "${UNPACED_CSRC}/stop_strings.cpp")
unpaced_cpp_test(ordered_sum_test ordered_sum_test.cpp)
target_compile_options(ordered_sum_test PRIVATE -O3 -ffp-contract=off)
unpaced_cpp_test(nucleus_bounds_test nucleus_bounds_test.cpp)
target_compile_options(nucleus_bounds_test PRIVATE -O3 -ffp-contract=off)

# Beside llama.cpp's samplers, for Python (tests/support/sampling_build.py compiles it by itself, too).
if(TARGET llama_cpp AND NOT UNPACED_SANITIZE)
  add_library(sampling_capi SHARED EXCLUDE_FROM_ALL sampling_capi.cpp)
  target_link_libraries(sampling_capi PRIVATE sampling)
endif()
