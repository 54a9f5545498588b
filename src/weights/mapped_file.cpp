#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace deepinfer::weights {

namespace {

/// A file descriptor that is closed on every way out.
struct Descriptor {
  int value = -1;
  explicit Descriptor(int fd) : value(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) {
      ::close(value);
    }
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto refusal = [&name](int error) {
    return fail(error == ENOENT ? ErrorKind::not_found : ErrorKind::io,
                name + ": " + (error == ENOENT ? "the file does not exist" : std::generic_category().message(error)));
  };
  // O_NONBLOCK: a FIFO in place of a file must not hang the start.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value < 0) {
    return refusal(errno);
  }
  struct stat status {};
  if (::fstat(file.value, &status) != 0) {
    return refusal(errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorKind::io, name + ": not a regular file");
  }
  if (status.st_size == 0) {
    return fail(ErrorKind::io, name + ": the file is empty");
  }
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) {
    return refusal(errno);
  }
  return MappedFile(static_cast<const std::byte*>(data), size_bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_bytes_);
  }
}

}  // namespace deepinfer::weights
