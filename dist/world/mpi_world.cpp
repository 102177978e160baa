// MPI, which is loaded only if mpirun has started the program: other runs do not wait for its
// libraries, and a build with MPI runs on machines without it. It must be the implementation whose
// header this was compiled with, since implementations differ in what a communicator is.
#include "dist/world/mpi_world.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>

#include <dlfcn.h>
#include <limits>
#include <mpi.h>

#include "core/base/error.h"

namespace rw {

namespace {

#ifdef OPEN_MPI
constexpr const char* kind = "Open MPI";
constexpr const char* names[] = {"libmpi.so.40", "libmpi.so"};
#else
constexpr const char* kind = "MPICH";
constexpr const char* names[] = {"libmpich.so.12", "libmpi.so.12", "libmpich.so", "libmpi.so"};
#endif

// The functions of the library that this file uses.
struct Functions {
  decltype(&MPI_Init_thread) init;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Abort) abort;
  decltype(&MPI_Comm_rank) rank;
  decltype(&MPI_Comm_size) size;
  decltype(&MPI_Comm_split_type) split;
  decltype(&MPI_Comm_free) free;
  decltype(&MPI_Get_library_version) version;
  decltype(&MPI_Comm_set_errhandler) set_error_handler;
  decltype(&MPI_Error_string) error_text;
  decltype(&MPI_Alltoallv) all_to_all;
  decltype(&MPI_Allgatherv) all_gather;
  decltype(&MPI_Bcast) broadcast;
  MPI_Comm world;
  MPI_Info no_info;
  MPI_Datatype byte;
  MPI_Errhandler returns_errors;
};

// Null if there is none here. The library stays loaded, since its exit handlers may run last.
void* open_library() {
  // Its plug-ins look up its names among those of the program.
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
  return nullptr;
}

class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}

  Functions functions() const {
    Functions f{};
    find(f.init, "MPI_Init_thread");
    find(f.finalize, "MPI_Finalize");
    find(f.abort, "MPI_Abort");
    find(f.rank, "MPI_Comm_rank");
    find(f.size, "MPI_Comm_size");
    find(f.split, "MPI_Comm_split_type");
    find(f.free, "MPI_Comm_free");
    find(f.version, "MPI_Get_library_version");
    find(f.set_error_handler, "MPI_Comm_set_errhandler");
    find(f.error_text, "MPI_Error_string");
    find(f.all_to_all, "MPI_Alltoallv");
    find(f.all_gather, "MPI_Allgatherv");
    find(f.broadcast, "MPI_Bcast");
#ifdef OPEN_MPI  // its constants are addresses of variables of the library
    find(f.world, "ompi_mpi_comm_world");
    find(f.no_info, "ompi_mpi_info_null");
    find(f.byte, "ompi_mpi_byte");
    find(f.returns_errors, "ompi_mpi_errors_return");
#else
    f.world = MPI_COMM_WORLD;
    f.no_info = MPI_INFO_NULL;
    f.byte = MPI_BYTE;
    f.returns_errors = MPI_ERRORS_RETURN;
#endif
    return f;
  }

 private:
  template <class T>
  void find(T& target, const char* name) const {
    target = reinterpret_cast<T>(dlsym(handle_, name));
    check<RankError>(target, "mpi", "the MPI library must be {}, got one without {}", kind, name);
  }

  void* handle_;
};

// "Open MPI v4.1.4, package: ..." up to its first comma or line.
std::string version_of(const Functions& f) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  f.version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

class MpiWorld : public Communicator {
 public:
  explicit MpiWorld(const Functions& functions) : f_(functions) {
    int provided = 0;
    expect(f_.init(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    check<RankError>(provided >= MPI_THREAD_SERIALIZED, "mpi",
                     "threads must be able to call the library in turns (MPI_THREAD_SERIALIZED), "
                     "got level {}: use a build of it that has threads",
                     provided);
    expect(f_.set_error_handler(f_.world, f_.returns_errors), "MPI_Comm_set_errhandler");
    expect(f_.rank(f_.world, &rank_), "MPI_Comm_rank");
    expect(f_.size(f_.world, &size_), "MPI_Comm_size");
    MPI_Comm machine{};
    expect(f_.split(f_.world, MPI_COMM_TYPE_SHARED, rank_, f_.no_info, &machine),
           "MPI_Comm_split_type");
    expect(f_.rank(machine, &local_rank_), "MPI_Comm_rank");
    expect(f_.size(machine, &local_size_), "MPI_Comm_size");
    f_.free(&machine);
  }
  ~MpiWorld() override { f_.finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::string str() const override { return version_of(f_); }

  void all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                  std::span<std::byte> from) override {
    const Parts sent(sizes);
    const Parts received(std::vector<size_t>(sizes.size(), sizes[static_cast<size_t>(rank_)]));
    expect(f_.all_to_all(to.data(), sent.counts.data(), sent.begins.data(), f_.byte, from.data(),
                         received.counts.data(), received.begins.data(), f_.byte, f_.world),
           "MPI_Alltoallv");
  }
  void all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                  std::span<std::byte> all) override {
    const Parts parts(sizes);
    expect(f_.all_gather(own.data(), count(own.size()), f_.byte, all.data(), parts.counts.data(),
                         parts.begins.data(), f_.byte, f_.world),
           "MPI_Allgatherv");
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    constexpr size_t most = size_t{1} << 30;
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size())))
      expect(
          f_.broadcast(bytes.data(), count(std::min(most, bytes.size())), f_.byte, root, f_.world),
          "MPI_Bcast");
  }
  [[noreturn]] void abort(int status) override {
    f_.abort(f_.world, status);
    std::_Exit(status);
  }

 private:
  // Bytes of all ranks, one after the other, as MPI counts them.
  struct Parts {
    explicit Parts(std::span<const size_t> sizes) {
      size_t at = 0;
      for (const size_t size : sizes) {
        counts.push_back(count(size));
        begins.push_back(count(at));
        at += size;
      }
    }
    std::vector<int> counts, begins;
  };
  static int count(size_t bytes) {
    check<RankError>(bytes <= size_t{std::numeric_limits<int>::max()}, "mpi",
                     "a message must be at most 2 GiB, got {} bytes", bytes);
    return static_cast<int>(bytes);
  }
  // Ranks that are out of step show here first, as messages of unexpected sizes.
  void expect(int result, const char* call) const {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    f_.error_text(result, text, &length);
    fail<RankError>("mpi",
                    "{} must succeed, got '{}'; do all ranks make the same calls, with the same "
                    "options and data?",
                    call, text);
  }

  const Functions f_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

}  // namespace

Communicator& mpi_world() {
  static MpiWorld world([] {
    void* library = open_library();
    check<RankError>(library, "mpi",
                     "mpirun started several ranks, which needs the {} that this was built with, "
                     "got no {}: apt install {}",
                     kind, names[0],
                     std::string_view(kind) == "MPICH" ? "libmpich12" : "libopenmpi3");
    return Library(library).functions();
  }());
  return world;
}

std::string mpi_library() {
  void* library = open_library();
  if (!library)
    return fmt::format("none: this build is for {}, and there is no {}", kind, names[0]);
  return version_of(Library(library).functions());
}

}  // namespace rw
