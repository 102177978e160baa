// A loop over independent items on all processors. Each item is computed by one thread in a fixed
// order, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace rw::reference {

// Calls body(i) for i in [0, count). `work` is the number of multiply-adds of one item; small loops
// stay on the calling thread. `body` must not throw.
template <class Body>
void parallel_for(uint64_t count, uint64_t work, const Body& body) {
  constexpr uint64_t work_per_thread = 100'000;  // well above the cost of starting a thread
  const uint64_t processors = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t wanted = std::max<uint64_t>(1, count * work / work_per_thread);
  const uint64_t threads = std::min({processors, wanted, std::max<uint64_t>(1, count)});

  const auto run_share = [&](uint64_t t) {
    for (uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) body(i);
  };
  std::vector<std::jthread> others;
  others.reserve(threads - 1);
  for (uint64_t t = 1; t < threads; ++t) try {
      others.emplace_back(run_share, t);
    } catch (const std::system_error&) {  // the system allows no more threads
      run_share(t);
    }
  run_share(0);
}

}  // namespace rw::reference
