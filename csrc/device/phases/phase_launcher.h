// Gives the GPU a phase's kernels.
#pragma once

#include "device/graph/step_phase.h"
#include "device/kernels/card.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/mat_vec.h"
#include "device/phases/mat_vec_choices.h"
#include "device/phases/value_places.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

class PhaseLauncher {
 public:
  // `places` and `choices` outlive this. windows: of attention of several rows, if there is any.
  PhaseLauncher(const ValuePlaces& places, const MatVecChoices& choices, const Card& card,
                const QueryWindows& windows = {})
      : places_(places), choices_(choices), card_(card), windows_(windows) {}

  // Throws std::runtime_error.
  void enqueue(const StepPhase& phase, CUstream_st* stream) const;

 private:
  // Of one launch among all.
  struct Place {
    CUstream_st* stream;
    bool next_is_ours;
    bool experts_are_known;  // a launch before it in the phase has the same
  };

  void enqueue(const NormLaunch& launch, const Place& place) const;
  void enqueue(const ExpertChoiceLaunch& launch, const Place& place) const;
  void enqueue(const RoundLaunch& launch, const Place& place) const;
  void enqueue(const ProductLaunch& launch, const Place& place) const;
  void enqueue(const GatedLaunch& launch, const Place& place) const;
  void enqueue(const ActivationLaunch& launch, const Place& place) const;
  void enqueue(const RopeLaunch& launch, const Place& place) const;
  void enqueue(const AttentionLaunch& launch, const Place& place) const;
  // In as many launches as columns take, each by the build that was chosen. part: whose input it
  // is.
  void enqueue(MatVec mat_vec, const ProductPart& part, const Place& place) const;

  const ValuePlaces& places_;
  const MatVecChoices& choices_;
  const Card card_;
  const QueryWindows windows_;
};

}  // namespace unpaced
