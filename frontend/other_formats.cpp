#include "frontend/other_formats.h"

#include <algorithm>

namespace graphpipe::frontend {
namespace {

struct Format {
  std::string_view begins_with, hint;
};

constexpr Format kFormats[] = {
    {"{", "it begins as JSON does: `plan` and `compile` take models, other verbs plans"},
    {"version https://git-lfs", "it is a pointer of Git LFS: `git lfs pull` fetches the file itself"},
    {"PK\3\4",
     "it is an archive: unpack it if it holds a model; of what torch.save wrote export the module itself to ONNX "
     "(README, A first pipeline)"},
    {"<", "it begins as web pages do: fetch the file itself, not the page that shows it"},
    {"\x1f\x8b", "it is compressed: unpack it first"},
};

/// A length of the header in eight bytes, and a header in JSON.
bool is_safetensors(std::string_view file) { return file.size() > 8 && file[7] == '\0' && file[8] == '{'; }

/// Of its beginning every byte is printed or blank.
bool is_text(std::string_view file) {
  constexpr size_t kEnough = 256;
  const std::string_view beginning = file.substr(0, kEnough);
  return !beginning.empty() && std::ranges::all_of(beginning, [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

}  // namespace

std::string_view hint_of_format(std::string_view file) {
  for (const Format& format : kFormats)
    if (file.starts_with(format.begins_with)) return format.hint;
  if (is_safetensors(file)) return "it holds weights without a model: export the module that they belong to";
  if (is_text(file)) return "it is text: a profile of another project is read by --profile FILE --profile-format NAME";
  return {};
}

}  // namespace graphpipe::frontend
