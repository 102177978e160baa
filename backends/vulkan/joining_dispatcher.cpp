#include "backends/vulkan/joining_dispatcher.h"

#include <utility>

namespace rw::vulkan {

// SwiftShader takes tens of seconds to compile a chain.
JoiningDispatcher::JoiningDispatcher(Dispatcher& inner, Recorder* recorder)
    : inner_(inner),
      recorder_(recorder),
      joins_(!is_without("fusion") && caps().driver_id != VK_DRIVER_ID_GOOGLE_SWIFTSHADER) {}

// A call that is held back must not fail later, in the name of another op.
void JoiningDispatcher::dispatch(const KernelCall& call) {
  if (held_ && held_->join(call)) return;
  if (!held_ || !held_->lets_by(call)) {
    release();
    if (joins_ && Chain::may_start(call.kernel) && available(call.kernel, call.bindings))
      held_ = Chain::start(call);
    if (held_) {
      held_number_ = number_;
      return;
    }
  }
  inner_.dispatch(call);
}

void JoiningDispatcher::release() {
  const auto chain = std::exchange(held_, {});
  if (!chain) return;
  if (recorder_) recorder_->set_call(held_number_);
  const OwnedCall joined = chain->joined();
  inner_.dispatch(joined.call());
  if (recorder_) recorder_->set_call(number_);
}

}  // namespace rw::vulkan
