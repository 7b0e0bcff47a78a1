#pragma once
// How files with data are named.

#include <filesystem>
#include <string>
#include <string_view>

namespace graphpipe::wire {

/// The file in a data folder that holds an input or label: plain characters stay, all others become '_'. Two names of
/// one model may meet in one file name; the compiler refuses such a model.
inline std::string data_file_name(std::string_view name) {
  std::string file;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    file += plain || c == '_' || c == '.' || c == '-' ? c : '_';
  }
  return file + ".npy";
}

/// Whether the name says that the file has to be unpacked: Parquet, Arrow, WebDataset tar.
inline bool has_packed_ending(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".gz") return path.stem().extension() == ".tar";
  return ending == ".parquet" || ending == ".arrow" || ending == ".feather" || ending == ".tar" || ending == ".tgz";
}

/// Whether a data folder's file of this name is read: packed files, arrays of NumPy, tensors of ONNX.
inline bool has_data_ending(const std::filesystem::path& path) {
  return path.extension() == ".npy" || path.extension() == ".pb" || has_packed_ending(path);
}

}  // namespace graphpipe::wire
