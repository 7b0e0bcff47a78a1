#pragma once
// The project's own files as the house tests read them.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::tests {

struct SourceFile {
  /// From the project root, with '/'.
  std::string path;
  std::vector<std::string> lines;

  bool has_extension(std::string_view extension) const { return path.ends_with(extension); }
  bool is_cpp() const { return has_extension(".h") || has_extension(".cpp") || has_extension(".inc"); }
  /// The first part of the path; empty for files in the root.
  std::string folder() const {
    const size_t slash = path.find('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
  }
};

struct Include {
  size_t line;
  std::string target;
  /// In angle brackets rather than quotes.
  bool angled;
};

inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// All text files of the project but data: code, scripts, build files and documents. Hidden folders and what builds
/// leave behind are not the project's.
inline const std::vector<SourceFile>& project_files() {
  static const std::vector<SourceFile> files = [] {
    namespace fs = std::filesystem;
    static const std::set<std::string> kExtensions = {".h",     ".cpp", ".py", ".sh", ".proto",
                                                      ".cmake", ".txt", ".md", ".in", ".json"};
    const fs::path root(GRAPHPIPE_SOURCE_DIR);
    std::vector<SourceFile> found;
    for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
      const std::string path = fs::relative(it->path(), root).generic_string();
      const std::string name = it->path().filename().string();
      const bool is_ours = !name.starts_with('.') && path != "build" && path != "out" && path != "shared" &&
                           path != "tests/data" && path != "tests/golden" && name != "__pycache__";
      if (it->is_directory() && !is_ours) it.disable_recursion_pending();
      if (!it->is_regular_file() || it->is_symlink() || !is_ours) continue;
      const bool is_script = path.starts_with("scripts/") && !it->path().has_extension();
      if (is_script || kExtensions.contains(it->path().extension().string()))
        found.push_back({path, lines_of(it->path())});
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return found;
  }();
  return files;
}

/// The #include lines of a C++ file. Lines inside raw strings are not: they are text that we generate, or expect.
inline std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> includes;
  std::string raw_end;  // what ends the raw string that the line starts in; empty outside
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (raw_end.empty() && line.starts_with("#include ")) {
      const bool angled = line[9] == '<';
      const size_t end = line.find(angled ? '>' : '"', 10);
      if (end != std::string::npos) includes.push_back({i + 1, line.substr(10, end - 10), angled});
    }
    for (size_t at = 0; at != std::string::npos;) {
      if (!raw_end.empty()) {
        at = line.find(raw_end, at);
        if (at != std::string::npos) at += raw_end.size();
        if (at != std::string::npos) raw_end.clear();
      } else if (at = line.find("R\"", at); at != std::string::npos) {
        const size_t open = line.find('(', at);
        if (open == std::string::npos) break;
        raw_end = ")" + line.substr(at + 2, open - at - 2) + "\"";
        at = open + 1;
      }
    }
  }
  return includes;
}

/// Calls of one of our CMake helpers: for "graphpipe_library", the name, then the words after it up to ')'.
inline std::map<std::string, std::vector<std::string>> calls_of(const SourceFile& file, const std::string& helper) {
  std::string all;
  for (const std::string& line : file.lines) all += line.substr(0, line.find('#')) + "\n";
  std::map<std::string, std::vector<std::string>> calls;
  for (size_t at = all.find(helper + "("); at != std::string::npos; at = all.find(helper + "(", at + 1)) {
    const size_t start = at + helper.size() + 1;
    std::istringstream words(all.substr(start, all.find(')', start) - start));
    std::string name;
    words >> name;
    for (std::string word; words >> word;) calls[name].push_back(word);
    calls.try_emplace(name);
  }
  return calls;
}

/// The words between DEPS and the next keyword.
inline std::set<std::string> deps_in(const std::vector<std::string>& words) {
  std::set<std::string> deps;
  bool inside = false;
  for (const std::string& word : words) {
    if (word == "DEPS") inside = true;
    else if (word == "THIRD_PARTY") inside = false;
    else if (inside) deps.insert(word);
  }
  return deps;
}

/// The include law: per folder the folders that it may include, as its CMakeLists.txt declares.
inline std::map<std::string, std::set<std::string>> include_law() {
  std::map<std::string, std::set<std::string>> law;
  for (const SourceFile& file : project_files()) {
    if (file.path != file.folder() + "/CMakeLists.txt" || file.folder() == "tests") continue;
    for (const std::string helper : {"graphpipe_library", "graphpipe_runtime_library"})
      for (const auto& [name, words] : calls_of(file, helper)) law[name] = deps_in(words);
  }
  return law;
}

}  // namespace graphpipe::tests
