#include "tests/crash/power_cut.h"

#include <filesystem>
#include <fstream>
#include <map>

namespace crash {
namespace {

namespace fs = std::filesystem;
using FlushedSizes = std::map<std::string, int64_t>;

// The names below a folder that was renamed are renamed with it.
std::string renamed(const std::string& path, const DiskEvent& event) {
  if (path == event.earlier) return event.path;
  const std::string below = event.earlier + "/";
  return path.starts_with(below) ? event.path + "/" + path.substr(below.size()) : path;
}

void rename_all(FlushedSizes& flushed, const DiskEvent& event) {
  FlushedSizes after;
  for (const auto& [path, size] : flushed) after[renamed(path, event)] = size;
  flushed = std::move(after);
}

bool is_flushed(const std::vector<DiskEvent>& journal, size_t rename) {
  std::string folder = fs::path(journal[rename].path).parent_path();
  for (size_t i = rename + 1; i < journal.size(); ++i) {
    if (journal[i].operation == Operation::kRename) folder = renamed(folder, journal[i]);
    else if (journal[i].path == folder) return true;
  }
  return false;
}

// A file system keeps the order of its renames, so that a first part of them survives. What is moved aside to be
// removed may have been emptied already: that rename, and all before it, count as done.
void take_back_renames(const std::vector<DiskEvent>& journal, std::mt19937& random) {
  for (size_t i = journal.size(); i-- > 0;) {
    const DiskEvent& event = journal[i];
    if (event.operation != Operation::kRename) continue;
    const bool to_remove = event.path.find("/.removing-") != std::string::npos;
    if (to_remove || is_flushed(journal, i) || random() % 3 == 0) return;
    if (fs::exists(event.path) && !fs::exists(event.earlier)) fs::rename(event.path, event.earlier);
  }
}

void damage(const fs::path& path, std::mt19937& random) {
  const auto size = static_cast<int64_t>(fs::file_size(path));
  switch (random() % 3) {
    case 0:
      fs::remove(path);
      return;
    case 1:
      fs::resize_file(path, static_cast<uintmax_t>(size > 0 ? static_cast<int64_t>(random()) % size : 0));
      return;
    default:
      fs::resize_file(path, static_cast<uintmax_t>(size / 2));
      fs::resize_file(path, static_cast<uintmax_t>(size));  // zeros where the bytes never came
  }
}

}  // namespace

void lose_what_was_not_flushed(const std::string& folder, const std::vector<DiskEvent>& journal, std::mt19937& random) {
  FlushedSizes flushed;
  for (const DiskEvent& event : journal) {
    if (event.operation == Operation::kRename) rename_all(flushed, event);
    else if (event.size >= 0) flushed[event.path] = event.size;
  }
  std::vector<fs::path> lost;
  if (!fs::exists(folder)) return;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto found = flushed.find(entry.path().string());
    if (found == flushed.end() || found->second != static_cast<int64_t>(entry.file_size()))
      lost.push_back(entry.path());
  }
  for (const fs::path& path : lost) damage(path, random);
  take_back_renames(journal, random);
}

}  // namespace crash
