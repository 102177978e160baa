// Modules whose specialization constants are fixed, checked by SPIR-V Tools.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <spirv-tools/libspirv.hpp>

#include <algorithm>
#include <set>
#include <string>

#include "backends/vulkan/commands/chain.h"
#include "backends/vulkan/device/freeze.h"
#include "backends/vulkan/device/shader_table.h"

using namespace rw;
using vulkan::freeze;

namespace {

using SpecValues = std::vector<std::pair<uint32_t, uint32_t>>;

const spvtools::SpirvTools& tools() {
  static spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_2);
  tools.SetMessageConsumer([](spv_message_level_t, const char*, const spv_position_t&,
                              const char* message) { MESSAGE(std::string(message)); });
  return tools;
}

bool is_valid(const std::vector<uint32_t>& words) {
  return tools().Validate(words.data(), words.size());
}

std::string text(const std::vector<uint32_t>& words) {
  std::string text;
  REQUIRE(tools().Disassemble(
      words, &text,
      SPV_BINARY_TO_TEXT_OPTION_NO_HEADER | SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES));
  return text;
}

size_t count_of(const std::string& text, std::string_view word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// Returns a function with these blocks, which writes to %out, with the constants %mode (SpecId 0,
// by default 0) and %is_one, whether it is 1.
std::vector<uint32_t> module_of(const std::string& blocks) {
  const std::string all = R"(
    OpCapability Shader
    OpMemoryModel Logical GLSL450
    OpEntryPoint GLCompute %main "main" %out
    OpExecutionMode %main LocalSize 1 1 1
    OpDecorate %mode SpecId 0
    {}
    %void = OpTypeVoid
    %uint = OpTypeInt 32 0
    %bool = OpTypeBool
    %float = OpTypeFloat 32
    %function = OpTypeFunction %void
    %pointer = OpTypePointer Private %uint
    %out = OpVariable %pointer Private
    %zero = OpConstant %uint 0
    %one = OpConstant %uint 1
    %two = OpConstant %uint 2
    %half = OpConstant %float 0.5
    %mode = OpSpecConstant %uint 0
    %is_one = OpSpecConstantOp %bool IEqual %mode %one
    %times = OpSpecConstantOp %uint Select %is_one %two %one
    %main = OpFunction %void None %function
    %start = OpLabel
    %read = OpLoad %uint %out
    %open = OpIEqual %bool %read %two
  )" + blocks + "\nOpFunctionEnd";
  const bool adds = blocks.find("%sum") != blocks.npos;
  const std::string source =
      fmt::format(fmt::runtime(all), adds ? "OpDecorate %sum NoContraction" : "");
  std::vector<uint32_t> words;
  REQUIRE(tools().Assemble(source, &words, SPV_TEXT_TO_BINARY_OPTION_PRESERVE_NUMERIC_IDS));
  REQUIRE(is_valid(words));
  return words;
}

// Returns a few specializations, with every value of every constant in one of the first three.
std::vector<SpecValues> samples(const vulkan::Shader& shader) {
  std::vector<SpecValues> all;
  for (size_t k = 0; k < 3; ++k) {
    SpecValues values = {{100, 32}, {101, 8}, {102, 1}, {103, k % 2}};
    for (size_t i = 0; i < shader.constants.size(); ++i) {
      const auto allowed = shader.constants[i].values;
      values.emplace_back(i, allowed[k * (allowed.size() - 1) / 2]);
    }
    all.push_back(std::move(values));
  }
  return all;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("freeze: every kernel's modules stay valid, without specialization constants") {
  size_t before = 0, after = 0, modules = 0;
  for (const vulkan::Shader& shader : vulkan::all_shaders()) {
    // SPIR-V Tools of Debian 12 do not know these matrices.
    if (shader.features & (vulkan::feature::cooperative | vulkan::feature::cooperative_bf16))
      continue;
    for (const SpecValues& values : samples(shader)) {
      const std::vector<uint32_t> words = freeze(shader.words, values);
      INFO(shader.kernel);
      // Three of a few hundred modules are enough, since each takes minutes under a sanitizer.
      if (words.size() < 20000) REQUIRE(is_valid(words));
      REQUIRE(freeze(words, {}) == words);
      before += shader.words.size(), after += words.size(), ++modules;
    }
  }
  CHECK(modules > 1000);
  CHECK(after < before * 2 / 3);
}

// Drivers may contract operations, each in its own way, which would give a chain other bits than
// its kernels one by one.
TEST_CASE("freeze: no float operation of kernels that join into chains may be contracted") {
  constexpr uint32_t decorate = 71, no_contraction = 42;
  const std::set<uint32_t> arithmetic = {129, 131, 133, 136, 142, 148};  // FAdd to Dot
  std::set<std::string> kernels;
  for (const vulkan::Shader& shader : vulkan::all_shaders()) {
    const std::string_view kernel = shader.kernel;
    // Products multiply and add in one operation everywhere.
    const bool joins = vulkan::Chain::may_start(kernel) && !kernel.starts_with("gemm_");
    if (!joins && kernel.find("chain") == kernel.npos) continue;
    INFO(kernel);
    const auto words = shader.words;
    std::set<uint32_t> kept;
    size_t operations = 0, contracted = 0;
    for (size_t at = 5; at < words.size(); at += words[at] >> 16) {
      const uint32_t op = words[at] & 0xffff;
      if (op == decorate && words[at + 2] == no_contraction) kept.insert(words[at + 1]);
      operations += arithmetic.contains(op);
      contracted += arithmetic.contains(op) && !kept.contains(words[at + 2]);
    }
    CHECK(contracted == 0);
    if (operations) kernels.insert(shader.kernel);
  }
  CHECK(kernels.size() == 14);
}

TEST_CASE("freeze: constants and what follows from them") {
  const std::vector<uint32_t> words = module_of(R"(
    OpStore %out %times
    OpReturn)");
  CHECK(text(freeze(words, {})).find("OpSpecConstant") == std::string::npos);
  const SpecValues one = {{0, 1}};
  const std::string is_one = text(freeze(words, one));
  CHECK(is_one.find("OpConstantTrue") != std::string::npos);
  CHECK(text(freeze(words, {})).find("OpConstantFalse") != std::string::npos);
  CHECK(count_of(is_one, " = OpConstant %uint 2") == 2);  // %two and %times
  CHECK(count_of(text(freeze(words, {})), " = OpConstant %uint 2") == 1);
  CHECK(is_valid(freeze(words, one)));
}

TEST_CASE("freeze: a selection keeps one side, and its phi one value") {
  const std::vector<uint32_t> words = module_of(R"(
    OpSelectionMerge %end None
    OpBranchConditional %is_one %yes %no
    %yes = OpLabel
    %more = OpIAdd %uint %read %one
    OpBranch %end
    %no = OpLabel
    %sum = OpFAdd %float %half %half
    OpBranch %end
    %end = OpLabel
    %value = OpPhi %uint %more %yes %zero %no
    OpStore %out %value
    OpReturn)");
  const std::vector<uint32_t> frozen = freeze(words, SpecValues{{0, 1}});
  CHECK(is_valid(frozen));
  CHECK(text(frozen).find("OpSelectionMerge") == std::string::npos);
  CHECK(text(frozen).find("OpFAdd") == std::string::npos);
  CHECK(text(frozen).find("NoContraction") == std::string::npos);  // it decorated a removed value
  CHECK(text(frozen).find("OpIAdd") != std::string::npos);
  const std::vector<uint32_t> other = freeze(words, {});
  CHECK(is_valid(other));
  CHECK(text(other).find("NoContraction") != std::string::npos);
  CHECK(text(other).find("OpIAdd") == std::string::npos);
}

TEST_CASE("freeze: a switch that is left from within stays a switch of one case") {
  const std::vector<uint32_t> words = module_of(R"(
    OpSelectionMerge %end None
    OpSwitch %mode %otherwise 1 %first 2 %second
    %first = OpLabel
    OpSelectionMerge %join None
    OpBranchConditional %open %leave %join
    %leave = OpLabel
    OpBranch %end
    %join = OpLabel
    OpStore %out %one
    OpBranch %second
    %second = OpLabel
    OpStore %out %two
    OpBranch %end
    %otherwise = OpLabel
    %sum = OpFAdd %float %half %half
    OpReturn
    %end = OpLabel
    OpReturn)");
  for (uint32_t mode = 0; mode < 4; ++mode) {
    const SpecValues values = {{0, mode}};
    const std::vector<uint32_t> frozen = freeze(words, values);
    CHECK(is_valid(frozen));
    CHECK(count_of(text(frozen), "OpSwitch") == 1);
    CHECK(count_of(text(frozen), "OpStore") == (mode == 1 ? 2 : mode == 2 ? 1 : 0));
    CHECK(count_of(text(frozen), "OpFAdd") == (mode == 0 || mode == 3));
    CHECK(count_of(text(frozen), "OpUnreachable") == (mode == 0 || mode == 3));  // the merge block
  }
}

TEST_CASE("freeze: modes of floats are declared") {
  const std::vector<uint32_t> words = module_of("OpReturn");
  const std::vector<vulkan::FloatMode> modes = {{4464, 4459, 16}, {4467, 4462, 32}};
  const std::vector<uint32_t> frozen = freeze(words, {}, true, modes);
  CHECK(is_valid(frozen));
  for (const char* line : {"OpCapability DenormPreserve", " DenormPreserve 16",
                           "OpCapability RoundingModeRTE", " RoundingModeRTE 32"})
    CHECK(count_of(text(frozen), line) == 1);
}

TEST_CASE("freeze: loops") {
  const std::string loop = R"(
    OpBranch %head
    %head = OpLabel
    %i = OpPhi %uint %zero %start %next %again
    OpLoopMerge %end %again {}
    OpBranch %body
    %body = OpLabel
    {}
    %again = OpLabel
    %next = OpIAdd %uint %i %one
    OpBranch %head
    %end = OpLabel
    %sum = OpFAdd %float %half %half
    OpReturn)";
  // The loop is left at once if the mode is 1: its continue target would not be reached, so
  // everything stays.
  const auto once =
      module_of(fmt::format(fmt::runtime(loop), "None", "OpBranchConditional %is_one %end %again"));
  const std::vector<uint32_t> frozen = freeze(once, SpecValues{{0, 1}});
  CHECK(is_valid(frozen));
  CHECK(count_of(text(frozen), "OpIAdd") == 1);
  CHECK(count_of(text(frozen), "OpBranchConditional") == 1);
  // The loop is never left if the mode is 0: the merge block is then empty.
  const std::vector<uint32_t> endless = freeze(once, {});
  CHECK(is_valid(endless));
  CHECK(count_of(text(endless), "OpBranchConditional") == 0);
  CHECK(count_of(text(endless), "OpUnreachable") == 1);
  CHECK(count_of(text(endless), "OpFAdd") == 0);
  const auto marked =
      module_of(fmt::format(fmt::runtime(loop), "Unroll", "OpBranchConditional %open %end %again"));
  CHECK(count_of(text(freeze(marked, {})), " Unroll") == 1);
  CHECK(is_valid(freeze(marked, {}, false)));
  CHECK(count_of(text(freeze(marked, {}, false)), " Unroll") == 0);
}

TEST_SUITE_END();
