// The launches of programs, counted on profiles of GPUs.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "apps/common/standard_steps.h"
#include "backends/launches.h"
#include "backends/profiles.h"
#include "core/files/json_file.h"
#include "data/base/files.h"
#include "planner/dry_run.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

// The update table's bindings are all parameters and gradients, an index_add's a whole table, and
// those of a copy of each text's first token all tokens.
bool has_whole_tables(const std::string& kernel) {
  return kernel == "sgd" || kernel == "adam" || kernel == "grad_stats" || kernel == "scatter_add" ||
         kernel == "copy";
}

// BERT's pooler and its loss have fewer rows than a GPU has multiprocessors. To split them takes
// another pass over the parts.
bool has_few_rows(const std::string& kernel) {
  return kernel == "gemm_cooperative.FACTORSf16.TILE64" || kernel == "cross_entropy";
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("launches: kernels, their workgroups, waves and bytes") {
  std::vector<KernelLaunch> all;
  const auto count = [&](const KernelLaunch& launch) { all.push_back(launch); };
  dry_run(open_counting("dry:rx7900xtx.json", count), [] {
    const Tensor x = zeros({256, 512});
    exp(x);
    matmul(zeros({64, 2048}), zeros({2048, 64}));
    relu(matmul(zeros({512, 64}), zeros({64, 512})));  // the last launch, which is held back
  });
  const auto find = [&](const char* kernel) {
    const auto found = std::ranges::find_if(
        all, [&](const KernelLaunch& l) { return l.kernel.starts_with(kernel); });
    REQUIRE(found != all.end());
    return *found;
  };
  const KernelLaunch unary = find("unary");  // 8 elements per thread, 64 threads per workgroup
  CHECK(unary.workgroups == 256);
  CHECK(unary.waves == doctest::Approx(256 / 96.0));
  CHECK(unary.bytes == 2 * 256 * 512 * 4);
  CHECK(unary.dtypes == "f32 f32");
  const KernelLaunch product = find("gemm_");
  CHECK(product.flops == 2.0 * 64 * 64 * 2048);
  CHECK(product.workgroups > 4);  // parts of long sums
  CHECK(find("gemm_chain_").flops == 2.0 * 512 * 64 * 512);
  CHECK(contains(launch_table(all),
                 "     1        256     2.67    1.00 MiB       0.0  unary f32 f32\n"));
  CHECK(contains(message_of<DeviceError>([&] { open_counting("cpu", count); }),
                 "[launches] a device must be 'vulkan...' or 'dry:FILE.json'"));
}

TEST_CASE("launches: tiles that the registers of Intel's GPUs hold") {
  for (const char* profile : {"iris-xe.json", "arc-a770.json", "arc-b580.json"}) {
    std::vector<std::string> products;
    const auto note = [&](const KernelLaunch& launch) {
      if (launch.flops > 0) products.push_back(launch.kernel);
    };
    dry_run(open_counting(fmt::format("dry:{}", profile), note), [] {
      for (const DType t : {DType::f32, DType::f16})
        matmul(zeros({4096, 1024}, t), zeros({1024, 4096}, t));
      relu(zeros({1}));  // the product before it is held back
    });
    REQUIRE(products.size() == 2);
    CHECK(products[0] == "gemm_tiled.TILE64");
    const bool has_matrices = profile != std::string_view("iris-xe.json");
    CHECK(products[1] == (has_matrices ? "gemm_cooperative.FACTORSf16.TILE64" : products[0]));
  }
}

TEST_CASE("launches: what moves more than a MB in a large step fills a GPU") {
  const TemporaryFolder folder;
  for (const uint32_t multiprocessors : {96, 132}) {
    const std::string file = folder / "card.json";
    auto profile = nlohmann::json::parse(read_config_text(find_profile("rx7900xtx.json")));
    profile["multiprocessors"] = multiprocessors;
    profile["heap_bytes"] = uint64_t{80} << 30;
    write_file(file, profile.dump());
    for (const StandardStep& standard : standard_steps()) {
      if (standard.name != "resnet50-64" && standard.name != "bert-base-32x128") continue;
      size_t launches = 0, updates = 0;
      const auto check = [&](const KernelLaunch& l) {
        ++launches;
        updates += l.kernel == "sgd" || l.kernel == "adam";
        if (l.bytes <= 1'000'000 || has_whole_tables(l.kernel)) return;
        CAPTURE(l.kernel);
        CAPTURE(l.dtypes);
        CAPTURE(l.bytes);
        CHECK(l.waves > (has_few_rows(l.kernel) ? 0.25 : 0.9));
      };
      dry_run(open_counting("dry:" + file, check), [&] {
        const auto step = standard.make(DType::f16);
        step();
      });
      CHECK(launches > 500);
      CHECK(updates > 0);
      CHECK(updates < 40);  // not one for each parameter
    }
  }
}

TEST_SUITE_END();

}  // namespace rw::test
