#include "runtime/io/output_file.h"

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) throw RunError(result.problems().front());
  return std::move(result).value();
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : file_(must(graphpipe::OutputFile::create(path))) {}

void OutputFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
void OutputFile::write(std::string_view text) { must(file_.write(text)); }
void OutputFile::keep() { must(file_.commit()); }

void check_output(const std::string& path) { must(check_output_path(path)); }

}  // namespace graphpipe::runtime
