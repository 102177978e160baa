#include <fmt/format.h>
#ifdef REWIND_OPENBLAS
#include <cblas.h>
#endif

#include <cstdio>
#include <cstring>
#include <memory>

#include "benchmarks/speed/cases.h"
#include "core/base/error.h"

namespace rw::speed {

namespace {

using Array = std::shared_ptr<std::vector<float>>;
Array ones(size_t n) {
  return std::make_shared<std::vector<float>>(n, 1.0f);
}

Work product([[maybe_unused]] int m, [[maybe_unused]] int n, [[maybe_unused]] int k,
             [[maybe_unused]] bool a_transposed, [[maybe_unused]] bool b_transposed) {
#ifdef REWIND_OPENBLAS
  const Array a = ones(size_t(m) * k), b = ones(size_t(k) * n), c = ones(size_t(m) * n);
  return [=] {
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, m, n, k, 1, a->data(),
                a_transposed ? m : k, b->data(), b_transposed ? k : n, 0, c->data(), n);
  };
#else
  check<ValueError>(false, "speed", "this program was built without OpenBLAS (libopenblas-dev)");
  return {};
#endif
}

}  // namespace

Work reference(const std::string& name) {
  if (name == "copy") {
    const Array from = ones(1 << 23), to = ones(1 << 23);
    return [=] { std::memcpy(to->data(), from->data(), from->size() * sizeof(float)); };
  }
  int m = 0, n = 0, k = 0;
  char a = 0, b = 0;
  check<ValueError>(std::sscanf(name.c_str(), "gemm/%dx%dx%d-%c%c", &m, &n, &k, &a, &b) == 5,
                    "speed", "only \"copy\" and products of matrices have a reference, got {}",
                    name);
  return product(m, n, k, a == 't', b == 't');
}

}  // namespace rw::speed
