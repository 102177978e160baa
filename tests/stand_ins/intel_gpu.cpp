// A stand-in for an Intel GPU, for programs that preload this library: Mesa's driver (ANV) finds
// the GPU that INTEL_GPU names, compiles for it, and submits commands, which do nothing. Debian's
// mesa-drm-shim has such stand-ins for AMD, NVIDIA, Apple and Qualcomm only.
//
// The library answers for the files by which libdrm finds a GPU, and for the ioctls of Linux's i915
// driver. The device file is an anonymous one, whose parts are the buffers.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tests/stand_ins/i915.h"

namespace {

namespace fs = std::filesystem;

using rw::stand_in::Gpu;
using rw::stand_in::I915;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr Gpu kGpus[] = {
    {"iris-xe", 0x9a49, 6, 16, 0},
    {"arc-a770", 0x56a0, 32, 16, 16 * kGiB},
    {"arc-b580", 0xe20b, 20, 8, 12 * kGiB},
};

const Gpu& gpu() {
  static const Gpu& chosen = []() -> const Gpu& {
    const char* name = std::getenv("INTEL_GPU");
    for (const Gpu& g : kGpus)
      if (name && std::string_view(name) == g.name) return g;
    std::fprintf(stderr, "INTEL_GPU must be one of");
    for (const Gpu& g : kGpus) std::fprintf(stderr, " %s", g.name);
    std::fprintf(stderr, ", got %s\n", name ? name : "nothing");
    std::exit(1);
  }();
  return chosen;
}

// ---- files --------------------------------------------------------------------------------------

constexpr const char* kNode = "/dev/dri/renderD128";
constexpr const char* kPci = "sys/devices/pci0000:00/0000:00:02.0";

// The files that libdrm reads of a GPU, in a folder that lasts as long as the process.
class Files {
 public:
  Files() : memory_(memfd_create("intel-gpu", MFD_CLOEXEC)) {
    char name[] = "/tmp/intel-gpu-XXXXXX";
    if (!mkdtemp(name) || memory_ < 0 || ftruncate(memory_, int64_t{1} << 46)) {
      std::perror("intel_gpu: no folder or no memory for its files");
      std::exit(1);
    }
    folder_ = name;
    const fs::path pci = folder_ / kPci, node = folder_ / "sys/dev/char/226:128";
    for (const fs::path& p : {pci / "drm/renderD128", node, folder_ / "dev/dri"})
      fs::create_directories(p);
    fs::create_directory_symlink(pci, node / "device");
    fs::create_directory_symlink("../../../bus/pci", pci / "subsystem");
    std::ofstream(folder_ / (kNode + 1));
    char id[8];
    std::snprintf(id, sizeof id, "%04x", gpu().pci_id);
    for (const char* file : {"vendor", "subsystem_vendor"}) std::ofstream(pci / file) << "0x8086\n";
    for (const char* file : {"device", "subsystem_device"})
      std::ofstream(pci / file) << "0x" << id << '\n';
    std::ofstream(pci / "revision") << "0x08\n";
    std::ofstream(pci / "uevent") << "DRIVER=i915\nPCI_ID=8086:" << id
                                  << "\nPCI_SLOT_NAME=0000:00:02.0\n";
    std::ofstream(node / "uevent") << "MAJOR=226\nMINOR=128\nDEVNAME=dri/renderD128\n";
  }
  ~Files() {
    std::error_code ignored;
    if (getpid() == owner_) fs::remove_all(folder_, ignored);
  }

  // Where a path of the GPU leads; another path leads to itself.
  std::string at(std::string_view path) const {
    if (path == kNode) return "/proc/self/fd/" + std::to_string(memory_);
    for (const char* own : {"/dev/dri", "/sys/dev/char/226:128"})
      if (path.starts_with(own)) return folder_ / path.substr(1);
    return std::string(path);
  }

  int memory() const { return memory_; }

 private:
  fs::path folder_;
  int memory_;
  pid_t owner_ = getpid();
};

// There once this library is loaded, whose own calls before are those of any program.
std::unique_ptr<Files> files;
std::unique_ptr<I915> driver;
__attribute__((constructor)) void find_gpu() {
  files = std::make_unique<Files>();
  driver = std::make_unique<I915>(gpu(), files->memory());
}

std::string at(const char* path) {
  return files ? files->at(path) : path;
}

// The function of that name that a program would call without this library.
template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool is_device(int fd) {
  const auto look = real<int(int, struct stat64*)>("fstat64");
  struct stat64 own, other;
  return files && look(files->memory(), &own) == 0 && look(fd, &other) == 0 &&
         own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

void make_device(struct stat64* s) {
  s->st_mode = (s->st_mode & ~mode_t{S_IFMT}) | S_IFCHR;
  s->st_rdev = makedev(226, 128);
}

}  // namespace

// ---- what Mesa and libdrm call of the C library -------------------------------------------------

extern "C" {

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const arg = va_arg(list, void*);
  va_end(list);
  if (!is_device(fd)) return real<int(int, unsigned long, ...)>("ioctl")(fd, request, arg);
  errno = driver->answer(request, arg);
  return errno ? -1 : 0;
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : mode_t{0};
  va_end(list);
  return real<int(const char*, int, ...)>("open64")(at(path).c_str(), flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  return real<FILE*(const char*, const char*)>("fopen64")(at(path).c_str(), mode);
}

DIR* opendir(const char* path) {
  return real<DIR*(const char*)>("opendir")(at(path).c_str());
}

int access(const char* path, int mode) noexcept {
  return real<int(const char*, int)>("access")(at(path).c_str(), mode);
}

ssize_t readlink(const char* path, char* to, size_t bytes) noexcept {
  return real<ssize_t(const char*, char*, size_t)>("readlink")(at(path).c_str(), to, bytes);
}

char* realpath(const char* path, char* to) noexcept {
  return real<char*(const char*, char*)>("realpath")(at(path).c_str(), to);
}
char* __realpath_chk(const char* path, char* to, size_t) noexcept {
  return realpath(path, to);
}

int stat64(const char* path, struct stat64* s) noexcept {
  const int result = real<int(const char*, struct stat64*)>("stat64")(at(path).c_str(), s);
  if (result == 0 && std::string_view(path) == kNode) make_device(s);
  return result;
}

int fstat64(int fd, struct stat64* s) noexcept {
  const int result = real<int(int, struct stat64*)>("fstat64")(fd, s);
  if (result == 0 && is_device(fd)) make_device(s);
  return result;
}

}  // extern "C"
