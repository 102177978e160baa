// A batch that is normalised in parts: statistics, exchange, gradients.
#include "nn/layers.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Joins a part with the others, whose statistics and sums are known beforehand.
class Known : public StatisticsExchange {
 public:
  int64_t rows(int64_t own) override { return own + others.rows; }
  BatchStatistics combine(BatchStatistics own) override {
    ++combined;
    return combine_statistics({own, others});
  }
  Tensor sum(Tensor own) override {
    return others_sums.numel() == own.numel() ? own + others_sums : others_sums;
  }

  BatchStatistics others;
  Tensor others_sums;
  int combined = 0;
};

void close(const Tensor& a, const Tensor& b, float tolerance = 2e-5f) {
  const Values x = a.to_vector(), y = b.to_vector();
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(y[i]).epsilon(tolerance));
}

// Returns dy * xhat and dy summed over the rows of a part, given the statistics of the batch.
Tensor sums_of(const Tensor& x, const Tensor& dy, const BatchStatistics& s, float eps) {
  const NoGrad guard;
  const Tensor xhat = (x - s.mean) * rsqrt(s.var + eps);
  return stack({sum(dy * xhat, {0, 1}), sum(dy, {0, 1})}, 0);
}

}  // namespace

TEST_CASE("batch_norm: parts of a large mean have what its rounding leaves") {
  on_each_device([] {
    manual_seed(4);
    const Tensor steps = floor(randn({12, 5}, 0, 100)) * 0x1p-10f;  // that f32 holds beside 10000
    const Tensor one = ones({5}), zero = zeros({5});
    const Tensor expected = batch_norm(steps, one, zero, 0).y, whole = steps + 10000.0f;
    const auto exchange = std::make_shared<Known>();
    exchange->others = batch_statistics(slice(whole, 0, 5, 12));
    const BatchNormResult r = batch_norm(slice(whole, 0, 0, 5), one, zero, 0, exchange);
    const Values a = r.y.to_vector(), b = expected.to_vector();
    for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 2e-5f);
  });
}

TEST_CASE("batch_norm: parts with an exchange are the whole batch") {
  on_each_device([] {
    constexpr float eps = 1e-3f;
    manual_seed(4);
    const Tensor whole = randn({2, 7, 5}, 3, 2).set_requires_grad(), dy = randn({2, 7, 5});
    Tensor w = (rand({5}) + 0.5f).set_requires_grad(), b = randn({5}).set_requires_grad();
    BatchNormResult all = batch_norm(whole, w, b, eps);
    all.y.backward(dy);
    const Tensor expected = whole.grad(), dw = w.grad(), db = b.grad();
    w.set_grad({}), b.set_grad({});

    const int64_t from[] = {0, 3, 7};
    for (const bool checkpointed : {false, true})
      for (int part = 0; part < 2; ++part) {
        const auto cut = [&](const Tensor& t, int i) {
          return contiguous(slice(t.detach(), 1, from[i], from[i + 1]));
        };
        const Tensor x = cut(whole, part).set_requires_grad();
        const auto exchange = std::make_shared<Known>();
        exchange->others = batch_statistics(cut(whole, 1 - part));
        exchange->others_sums =
            sums_of(cut(whole, 1 - part), cut(dy, 1 - part), {all.mean, all.var, 14}, eps);
        Tensor mean;
        const auto run = [&](const Tensor& in) {
          BatchNormResult r = batch_norm(in, w, b, eps, exchange);
          CHECK(r.rows == 14);
          mean = r.mean;
          return r.y * 1.0f;
        };
        const Tensor y = checkpointed ? checkpoint(run, x) : run(x);
        close(y, cut(all.y, part));
        close(mean, all.mean);
        y.backward(cut(dy, part));
        close(x.grad(), cut(expected, part), 1e-4f);
        CHECK(exchange->combined == 1);  // replays know the result
      }
    // Each part ran twice.
    close(w.grad() * 0.5f, dw, 1e-4f);
    close(b.grad() * 0.5f, db, 1e-4f);
  });
}

TEST_CASE("batch_norm: statistics of many rows, far from zero") {
  on_each_device([] {
    manual_seed(6);
    constexpr int64_t rows = 9001, channels = 3;  // on a GPU, more chunks than are joined at once
    const Tensor x = randn({rows, channels}, 100, 2);
    const BatchNormResult all = batch_norm(x, full({channels}, 1), zeros({channels}));
    const Values values = x.to_vector(), mean = all.mean.to_vector(), var = all.var.to_vector();
    for (size_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = c; i < values.size(); i += channels) sum += values[i];
      for (size_t i = c; i < values.size(); i += channels)
        squares += (values[i] - sum / rows) * (values[i] - sum / rows);
      CHECK(mean[c] == doctest::Approx(sum / rows).epsilon(1e-6));
      CHECK(var[c] == doctest::Approx(squares / rows).epsilon(1e-5));
    }
  });
}

TEST_CASE("batch_norm: statistics of uneven parts") {
  on_each_device([] {
    const Tensor x = randn({100, 3}, 1000, 2);
    std::vector<BatchStatistics> parts;
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 40}, {40, 100}})
      parts.push_back(batch_statistics(slice(x, 0, begin, end)));
    const BatchStatistics all = batch_statistics(x), combined = combine_statistics(parts);
    CHECK(combined.rows == 100);
    close(combined.mean, all.mean);
    close(combined.var, all.var, 1e-3f);
    CHECK_THROWS_AS(combine_statistics({}), ShapeError);
    parts[1] = batch_statistics(randn({2, 4}));
    CHECK(
        contains(message_of<ShapeError>([&] { combine_statistics(parts); }),
                 "[batch_norm] statistics must be f32 [3] of at least one row, got mean f32 (4)"));
  });
}

TEST_CASE("BatchNorm2d: running statistics of the whole batch, from one value per part") {
  on_each_device([] {
    const Tensor x = randn({1, 1, 2, 3});
    BatchNorm2d expected(3), part(3);
    expected(x);
    const auto exchange = std::make_shared<Known>();
    exchange->others = batch_statistics(slice(x, 2, 1, 2));
    part.exchange = exchange;
    part(slice(x, 2, 0, 1));
    close(part.running_mean, expected.running_mean);
    close(part.running_var, expected.running_var);
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "batch_norm: what an exchange gives is checked" * doctest::test_suite("host")) {
  const auto exchange = std::make_shared<Known>();
  exchange->others = {full({2}, 0), full({2}, 1), 4};
  const Tensor x = randn({4, 3}), one = full({3}, 1);
  CHECK_THROWS_AS(batch_norm(x, one, one, 1e-5f, exchange), ShapeError);
  exchange->others = {full({3}, 0), full({3}, 1), 4};
  exchange->others_sums = full({1, 3}, 1);
  const Tensor wanted = randn({4, 3}).set_requires_grad();
  const Tensor y = batch_norm(wanted, one, one, 1e-5f, exchange).y;
  CHECK(contains(message_of<ShapeError>([&] { sum(y).backward(); }),
                 "[batch_norm] the exchange's sums must be those of f32 (2, 3)"));
}

}  // namespace rw::test
