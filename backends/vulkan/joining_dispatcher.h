// A dispatcher that holds a call of a module back until the next call shows whether it joins the
// first (commands/chain.h).
#pragma once

#include "commands/chain.h"
#include "commands/recorder.h"
#include "passes/dispatcher.h"

namespace rw::vulkan {

class JoiningDispatcher final : public Dispatcher {
 public:
  // `recorder` is null where calls are only counted.
  JoiningDispatcher(Dispatcher& inner, Recorder* recorder);

  const Caps& caps() const override { return inner_.caps(); }
  void dispatch(const KernelCall& call) override;
  bool available(std::string_view kernel, std::span<const Binding> bindings) const override {
    return inner_.available(kernel, bindings);
  }

  // Begins a kernel call, to which the next modules belong.
  void begin_call() {
    if (recorder_) recorder_->set_call(number_ = recorder_->next_call());
  }
  // Dispatches the call that is held back, if there is one.
  void release();

 private:
  Dispatcher& inner_;
  Recorder* const recorder_;
  const bool joins_;
  uint64_t number_ = 0, held_number_ = 0;  // of the call, and of the one that is held back
  std::optional<Chain> held_;
};

}  // namespace rw::vulkan
