// Where a block of threads is in its parts of a task: step after step, matrix after matrix.
#pragma once

#include "device/kernels/mat_mat/task.h"

namespace unpaced::mat_mat {

class Cursor {
 public:
  UNPACED_RECORD Cursor(const Task& task, int block, int n_blocks)
      : task_(&task), block_(block), n_blocks_(n_blocks), part_(block) {
    find();
  }

  [[nodiscard]] UNPACED_RECORD bool is_done() const { return stream_ >= task_->n_streams; }
  [[nodiscard]] UNPACED_RECORD int stream() const { return stream_; }  // its (first) matrix
  [[nodiscard]] UNPACED_RECORD int part() const { return part_; }
  [[nodiscard]] UNPACED_RECORD int tile() const { return tile_; }
  [[nodiscard]] UNPACED_RECORD int step_of_tile() const { return step_; }
  // Behind this step what has been summed is a part's sum of a tile.
  [[nodiscard]] UNPACED_RECORD bool ends_sums() const {
    return n_left_ == 1 || step_ + 1 == division().n_steps;
  }

  UNPACED_RECORD void step() {
    ++step_;
    if (--n_left_ == 0) {
      part_ += n_blocks_;
      find();
    } else if (step_ == division().n_steps) {
      step_ = 0;
      ++tile_;
    }
  }

 private:
  [[nodiscard]] UNPACED_RECORD const Division& division() const {
    return task_->matrices[stream_].division;
  }

  // The next part that has a step, this one or a later one.
  UNPACED_RECORD void find() {
    while (!is_done()) {
      if (part_ >= division().n_parts) {
        // Matrices of fewer steps than there are blocks give these to blocks of their own each.
        ++stream_;
        part_ = (block_ + stream_) % n_blocks_;
        continue;
      }
      const int first = division().first(part_);
      n_left_ = division().first(part_ + 1) - first;
      if (n_left_ > 0) {
        tile_ = first / division().n_steps;
        step_ = first - tile_ * division().n_steps;
        return;
      }
      part_ += n_blocks_;
    }
  }

  const Task* task_;
  int block_, n_blocks_;
  int stream_ = 0;
  int part_;
  int tile_ = 0;
  int step_ = 0;
  int n_left_ = 0;
};

}  // namespace unpaced::mat_mat
