#pragma once
// The name of the file in a data folder that holds an input or label: plain characters stay, all others become '_'.
// Two names of one model may meet in one file name; the compiler refuses such a model.

#include <string>
#include <string_view>

namespace graphpipe::wire {

inline std::string data_file_name(std::string_view name) {
  std::string file;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    file += plain || c == '_' || c == '.' || c == '-' ? c : '_';
  }
  return file + ".npy";
}

}  // namespace graphpipe::wire
