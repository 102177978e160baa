#include "backends/cpu/stack.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

namespace rw::cpu {

namespace {

constexpr size_t stack_bytes = 4 << 20, least_left = 1 << 20;

// Returns the lowest address of this thread's stack; null if the system does not tell.
const std::byte* stack_end() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<const std::byte*>(low);
}

bool has_room() {
  thread_local const std::byte* const end = stack_end();
  std::byte here{};
  return !end || &here - end >= static_cast<std::ptrdiff_t>(least_left);
}

}  // namespace

std::optional<pthread_t> start_thread(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return {};
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const auto run = [](void* given) -> void* {
    const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(given));
    (*mine)();
    return nullptr;
  };
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, run, owned.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return {};
  static_cast<void>(owned.release());
  return thread;
}

void with_stack(const std::function<void()>& body) {
  if (has_room()) return body();
  std::exception_ptr thrown;
  const auto thread = start_thread([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  if (!thread) return body();
  pthread_join(*thread, nullptr);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace rw::cpu
