#pragma once
// The scanner of a safetensors header: the subset of JSON that the format allows, nothing else.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::runtime {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> dims;
  int64_t begin = -1;
  int64_t end = -1;
};

/// Appends the entries of `json` (__metadata__ is skipped). Returns an empty text or what is wrong.
std::string scan_safetensors_header(std::string_view json, std::vector<HeaderEntry>& entries);

}  // namespace graphpipe::runtime
