// Sequential: modules one after another, named "0", "1", ...
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "containers.h"
#include "module.h"

namespace rw {

// y = last(...(second(first(x)))). It owns its modules.
class Sequential : public ModuleList {
 public:
  Tensor forward(Tensor x) override;

  using ModuleList::append;
  // Appends a function of one tensor, as a module without parameters.
  void append(std::function<Tensor(Tensor)> function) { emplace<Lambda>(std::move(function)); }

  // In training, each k consecutive modules are one checkpoint segment; 0 turns that off. If blocks
  // are checkpointed (BlockCheckpoints), k defaults to about the square root of the number of
  // modules, for a chain of more than 8 modules without children, and for the outermost Sequential;
  // modules with children make segments of their own.
  void checkpoint_every(size_t k) { checkpoint_every_ = k; }

 protected:
  bool segments_itself() const override;

 private:
  bool has_blocks() const;
  size_t segment_length() const;

  std::optional<size_t> checkpoint_every_;
};

}  // namespace rw
