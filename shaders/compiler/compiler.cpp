// Compiles and checks shader modules: one process for all of a build, as starting a compiler costs
// three times what it then does for a module. It speaks of files only; which variants there are is
// compile.py's to say.
//
//   compiler --version      what compiled modules depend on
//   compiler < JOBS         lines of `MODE INPUT OUTPUT`, in threads; MODE is
//     optimize   GLSL of a compute shader -> SPIR-V, optimized and validated
//     keep       the same, not optimized
//     plain      the same, neither optimized nor validated
//     check      validates SPIR-V; OUTPUT is not touched
//   With `-precise` behind it, no float operation of the module may be contracted with another.
//
// Messages of jobs that failed go to the standard output, in the order of the jobs; the exit status
// is 1 then.
#include <glslang/build_info.h>
#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>
#include <spirv-tools/libspirv.hpp>
#include <spirv-tools/optimizer.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Words = std::vector<uint32_t>;
constexpr spv_target_env environment = SPV_ENV_VULKAN_1_2;

struct Job {
  std::string mode, input, output;
  std::string message = {};  // empty: it went well
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error(path + " cannot be read");
  return text;
}

void write(const std::string& path, const Words& words) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * sizeof(uint32_t)));
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

Words compile(const std::string& source) {
  const char* text = source.c_str();
  glslang::TShader shader(EShLangCompute);
  shader.setStrings(&text, 1);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 100);
  shader.setEnvClient(glslang::EShClientVulkan, glslang::EShTargetVulkan_1_2);
  shader.setEnvTarget(glslang::EShTargetSpv, glslang::EShTargetSpv_1_5);
  const auto messages = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);
  if (!shader.parse(GetDefaultResources(), 110, false, messages))
    throw std::runtime_error(shader.getInfoLog());
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(messages)) throw std::runtime_error(program.getInfoLog());
  Words words;
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), words);
  return words;
}

// Appends the messages of SPIRV-Tools to `text`.
spvtools::MessageConsumer into(std::string& text) {
  return
      [&text](spv_message_level_t level, const char*, const spv_position_t&, const char* message) {
        if (level <= SPV_MSG_ERROR) text += std::string(message) + "\n";
      };
}

// The passes of spirv-opt -O that make modules small. All of them take twice as long, unroll loops,
// and a driver has its own.
void add_passes(spvtools::Optimizer& optimizer) {
  using namespace spvtools;
  optimizer.RegisterPass(CreateWrapOpKillPass())
      .RegisterPass(CreateDeadBranchElimPass())
      .RegisterPass(CreateMergeReturnPass())
      .RegisterPass(CreateInlineExhaustivePass())
      .RegisterPass(CreateEliminateDeadFunctionsPass())
      .RegisterPass(CreateAggressiveDCEPass())
      .RegisterPass(CreatePrivateToLocalPass())
      .RegisterPass(CreateScalarReplacementPass())
      .RegisterPass(CreateLocalAccessChainConvertPass())
      .RegisterPass(CreateLocalSingleBlockLoadStoreElimPass())
      .RegisterPass(CreateLocalSingleStoreElimPass())
      .RegisterPass(CreateAggressiveDCEPass())
      .RegisterPass(CreateSSARewritePass())
      .RegisterPass(CreateAggressiveDCEPass())
      .RegisterPass(CreateCCPPass())
      .RegisterPass(CreateDeadBranchElimPass())
      .RegisterPass(CreateRedundancyEliminationPass())
      .RegisterPass(CreateSimplificationPass())
      .RegisterPass(CreateAggressiveDCEPass())
      .RegisterPass(CreateBlockMergePass());
}

Words optimize(const Words& words) {
  std::string said;
  spvtools::Optimizer optimizer(environment);
  optimizer.SetMessageConsumer(into(said));
  add_passes(optimizer);
  Words out;
  spvtools::OptimizerOptions options;
  options.set_run_validator(false);  // the result is validated
  if (!optimizer.Run(words.data(), words.size(), &out, options))
    throw std::runtime_error("spirv-opt: " + said);
  return out;
}

// Operations of floats that a driver may contract with others, as in the specification.
bool is_float_arithmetic(uint32_t op) {
  constexpr uint32_t all[] = {/* FAdd */ 129,
                              /* FSub */ 131,
                              /* FMul */ 133,
                              /* FDiv */ 136,
                              /* VectorTimesScalar */ 142,
                              /* Dot */ 148};
  return std::find(std::begin(all), std::end(all), op) != std::end(all);
}

// Decorates all of them with NoContraction. GLSL's `precise` does not reach into functions that are
// called.
Words precise(const Words& words) {
  constexpr size_t header = 5;
  constexpr uint32_t first_type = 19, decorate = 3 << 16 | 71, no_contraction = 42;
  Words decorations;
  size_t types = 0;
  for (size_t at = header; at < words.size(); at += words[at] >> 16) {
    const uint32_t op = words[at] & 0xffff;
    if (op == first_type && !types) types = at;
    if (is_float_arithmetic(op))
      decorations.insert(decorations.end(), {decorate, words[at + 2], no_contraction});
  }
  Words out = words;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(types), decorations.begin(),
             decorations.end());
  return out;
}

void validate(const Words& words) {
  std::string said;
  spvtools::SpirvTools tools(environment);
  tools.SetMessageConsumer(into(said));
  if (!tools.Validate(words)) throw std::runtime_error("spirv-val: " + said);
}

void run(const Job& job) {
  const std::string content = read(job.input);
  if (job.mode == "check") {
    Words words(content.size() / sizeof(uint32_t));
    content.copy(reinterpret_cast<char*>(words.data()), words.size() * sizeof(uint32_t));
    return validate(words);
  }
  const auto mode = [&](std::string_view text) { return job.mode.find(text) != job.mode.npos; };
  Words words = compile(content);
  if (mode("precise")) words = precise(words);
  if (mode("optimize")) words = optimize(words);
  if (!mode("plain")) validate(words);
  write(job.output, words);
}

std::vector<Job> read_jobs() {
  std::vector<Job> jobs;
  for (std::string line; std::getline(std::cin, line);) {
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == last) throw std::runtime_error("a job is MODE INPUT OUTPUT, got: " + line);
    jobs.push_back(
        {line.substr(0, first), line.substr(first + 1, last - first - 1), line.substr(last + 1)});
  }
  return jobs;
}

void run_all(std::vector<Job>& jobs) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < jobs.size();) try {
        run(jobs[i]);
      } catch (const std::exception& e) {
        jobs[i].message = e.what();
      }
  };
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::cout << "glslang " << GLSLANG_VERSION_MAJOR << '.' << GLSLANG_VERSION_MINOR << '.'
              << GLSLANG_VERSION_PATCH << '\n'
              << spvSoftwareVersionDetailsString() << '\n';
    return 0;
  }
  std::vector<Job> jobs = read_jobs();
  glslang::InitializeProcess();
  run_all(jobs);
  glslang::FinalizeProcess();
  bool failed = false;
  for (const Job& job : jobs)
    if (!job.message.empty()) {
      std::cout << job.input << ": " << job.message << '\n';
      failed = true;
    }
  return failed;
} catch (const std::exception& e) {
  std::cerr << "shader compiler: " << e.what() << '\n';
  return 2;
}
