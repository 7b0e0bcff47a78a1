#include "runtime/pace/repeated_memory.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/error.h"
#include "runtime/tensors.h"
#include "support/check.h"
#include "support/descriptor.h"

namespace graphpipe::runtime {
namespace {

constexpr size_t kPeriod = 4 << 20;

[[noreturn]] void no_range(size_t size) {
  fail(Code::kEnvironment, text("no ", size, " bytes of addresses for messages: ", std::strerror(errno)),
       "send less with --pace-bytes");
}

}  // namespace

RepeatedMemory::RepeatedMemory(int64_t bytes) {
  size_ = (static_cast<size_t>(bytes) / kPeriod + 1) * kPeriod;
  const Descriptor file(memfd_create("graphpipe-pace", MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), static_cast<off_t>(kPeriod)) != 0) no_range(kPeriod);
  void* range = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) no_range(size_);
  start_ = static_cast<std::byte*>(range);
  for (size_t offset = 0; offset < size_; offset += kPeriod)
    if (mmap(start_ + offset, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
      munmap(start_, size_);
      no_range(size_);
    }
}

RepeatedMemory::~RepeatedMemory() { munmap(start_, size_); }

at::Tensor RepeatedMemory::tensor(const TensorRow& row, int64_t samples) const {
  GP_CHECK(static_cast<size_t>(bytes_of(row, samples)) <= size_);
  return at::from_blob(start_, shape_of(row, samples), at::TensorOptions().dtype(scalar_type(row.type)));
}

}  // namespace graphpipe::runtime
