// Work sharing of the cpu backend: one loop over independent pieces of work. What a piece is
// depends on sizes alone, never on the number of threads, and so neither do the bits.
#pragma once

#include <cstdint>
#include <omp.h>

namespace rw::cpu {

// While it lives, what oneDNN makes on this thread, and runs, is for one thread.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

// body(i) for i in [0, count), by as many threads as OpenMP has; each is on one. It must not throw.
template <class Body>
void parallel_for(int64_t count, const Body& body) {
  if (count == 1) {
    const OneThread here;
    return body(0);
  }
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace rw::cpu
