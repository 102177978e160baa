// oneDNN uses as many threads as OpenMP would give its caller. Here each piece of work runs on one
// thread.
#pragma once

// These functions belong to OpenMP's library, which oneDNN brings. Only some compilers have its
// header.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace rw::cpu {

// While it lives, primitives that oneDNN makes and runs on this thread use one thread.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

}  // namespace rw::cpu
