#include "data/chat/chat_template.h"

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <spawn.h>

#include "core/base/error.h"
#include "data/base/unicode.h"

extern char** environ;

namespace rw {

namespace {

using OrderedJson = nlohmann::ordered_json;  // templates see the order of names

constexpr int no_jinja = 3;  // the script's exit status where jinja2 is missing

// The environment is that of transformers' utils/chat_template_utils.py. The sandbox keeps a
// template from what is not its own, and the limits, which are set when everything is imported,
// from the rest. Results are in ASCII, whatever the locale is.
constexpr const char* renderer = R"(
import datetime, json, os, pprint, random, resource, signal, sys
try:
    import jinja2.debug, jinja2.ext, jinja2.sandbox
except ImportError:
    sys.exit(3)

class Generation(jinja2.ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("as_it_is"), [], [], body).set_lineno(line)
    def as_it_is(self, caller):
        return caller()

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def strftime_now(format):
    return datetime.datetime.now().strftime(format)

class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)
    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)

class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)
    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)
    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot have the attribute {name!r}")

def rendered(template, job, request):
    try:
        return {"text": template.render(tools=None, documents=None, **request, **job["tokens"])}
    except Exception as error:
        return {"refusal": str(error) or type(error).__name__}

job = json.load(sys.stdin)
environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now,
                           dict=Dict(), namespace=Namespace)
# What is imported only when it is used: codecs, the time zone.
environment.from_string(r"{{ '\n\u0041\x41' | trim | tojson }}{{ strftime_now('%d') }}").render()
os.closerange(3, 1 << 16)
signal.alarm(120)
for limit, most in ((resource.RLIMIT_CPU, 5), (resource.RLIMIT_AS, 1 << 30),
                    (resource.RLIMIT_FSIZE, 1 << 26), (resource.RLIMIT_NOFILE, 3)):
    hard = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, [most if hard == resource.RLIM_INFINITY else min(most, hard)] * 2)
try:
    template = environment.from_string(job["template"])
except Exception as error:
    print(json.dumps({"error": str(error) or type(error).__name__}))
else:
    print(json.dumps({"chats": [rendered(template, job, request) for request in job["requests"]]}))
)";

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using TemporaryFile = std::unique_ptr<std::FILE, CloseFile>;

TemporaryFile temporary_file() {
  TemporaryFile file(std::tmpfile());
  check<FileError>(file != nullptr, "ChatFormat", "a temporary file must be possible: {}",
                   std::strerror(errno));
  return file;
}

// Runs the script by an interpreter, with these files. Its status as of waitpid(); or that of
// missing jinja2, if there is no such interpreter.
int run_renderer(const std::string& python, std::FILE* in, std::FILE* out) {
  std::rewind(in);
  std::array<const char*, 5> words = {python.c_str(), "-I", "-c", renderer, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int fault = posix_spawnp(&child, python.c_str(), &actions, nullptr,
                                 const_cast<char**>(words.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) return no_jinja << 8;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string whole_text(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 4096> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file))
    text.append(piece.data(), count);
  return text;
}

OrderedJson job_of(const std::string& jinja, const std::map<std::string, std::string>& tokens,
                   std::span<const ChatRequest> requests) {
  OrderedJson job = {
      {"template", to_valid_utf8(jinja)}, {"tokens", tokens}, {"requests", OrderedJson::array()}};
  for (const ChatRequest& request : requests) {
    OrderedJson messages = OrderedJson::array();
    for (const ChatMessage& message : request.messages)
      messages.push_back({{"role", message.role}, {"content", to_valid_utf8(message.content)}});
    job["requests"].push_back(
        {{"messages", std::move(messages)}, {"add_generation_prompt", request.generation_prompt}});
  }
  return job;
}

OrderedJson answer_of(const OrderedJson& job, const std::vector<std::string>& pythons) {
  const TemporaryFile in = temporary_file();
  const std::string text = job.dump(-1, ' ', true);
  check<FileError>(std::fwrite(text.data(), 1, text.size(), in.get()) == text.size() &&
                       std::fflush(in.get()) == 0,
                   "ChatFormat", "a temporary file must take {} bytes: {}", text.size(),
                   std::strerror(errno));
  for (const std::string& python : pythons) {
    const TemporaryFile out = temporary_file();
    const int status = run_renderer(python, in.get(), out.get());
    if (WIFEXITED(status) && WEXITSTATUS(status) == no_jinja) continue;
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ChatFormat",
          "the chat template must be rendered within 5 s and 1 GiB, and was not ({} {}); name a "
          "format instead (--chat-format chatml)",
          WIFSIGNALED(status) ? "signal" : "status",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return OrderedJson::parse(whole_text(out.get()));
  }
  fail<FileError>(
      "ChatFormat",
      "the chat template is a program in Jinja, which python3 runs with jinja2: install "
      "the package python3-jinja2, or name a format instead (--chat-format chatml)");
}

}  // namespace

std::vector<RenderedChat> run_chat_template(const std::string& jinja,
                                            const std::map<std::string, std::string>& tokens,
                                            std::span<const ChatRequest> requests,
                                            const std::vector<std::string>& pythons) {
  try {
    const OrderedJson answer = answer_of(job_of(jinja, tokens, requests), pythons);
    check(!answer.contains("error"), "ChatFormat",
          "the chat template must be one in Jinja, got: {}; name a format instead (--chat-format "
          "chatml)",
          answer.value("error", ""));
    std::vector<RenderedChat> chats;
    for (const OrderedJson& chat : answer.at("chats"))
      chats.push_back({chat.value("text", ""), chat.value("refusal", "")});
    check(chats.size() == requests.size(), "ChatFormat", "there must be {} texts, got {}",
          requests.size(), chats.size());
    return chats;
  } catch (const OrderedJson::exception& error) {  // not UTF-8, as of half a surrogate pair
    fail("ChatFormat", "the chat template must make texts, got: {}", error.what());
  }
}

}  // namespace rw
