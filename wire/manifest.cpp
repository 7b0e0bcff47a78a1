#include "wire/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

namespace graphpipe::wire {
namespace {

constexpr std::string_view kHeader = "graphpipe-manifest 1";
constexpr size_t kDigestLength = 64;

bool is_inside_folder(std::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t slash = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, slash - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = slash + 1;
  }
  for (char c : path)
    if (static_cast<unsigned char>(c) < 0x20) return false;
  return true;
}

// Cuts the text up to the next `separator` off the front of `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

}  // namespace

bool is_digest(std::string_view word) {
  if (word.size() != kDigestLength) return false;
  for (char c : word)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  return true;
}

bool parse_manifest_line(std::string_view line, ManifestEntry& entry) {
  entry.sha256 = std::string(take(line, ' '));
  const std::string_view size = take(line, ' ');
  entry.path = std::string(line);
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), entry.size);
  return is_digest(entry.sha256) && error == std::errc() && end == size.data() + size.size() && entry.size >= 0 &&
         is_inside_folder(entry.path);
}

std::string print_manifest_line(const ManifestEntry& entry) {
  return "file " + entry.sha256 + " " + std::to_string(entry.size) + " " + entry.path + "\n";
}

std::string print_manifest(const Manifest& manifest) {
  std::ostringstream out;
  out << kHeader << "\nplan " << manifest.plan << '\n';
  for (const ManifestEntry& file : manifest.files) out << print_manifest_line(file);
  return out.str();
}

bool parse_manifest(std::string_view text, Manifest& manifest, std::string& problem) {
  manifest = {};
  if (take(text, '\n') != kHeader) {
    problem = "the first line is not '" + std::string(kHeader) + "'";
    return false;
  }
  std::set<std::string> seen;
  for (int number = 2; !text.empty(); ++number) {
    std::string_view line = take(text, '\n');
    const std::string_view key = take(line, ' ');
    ManifestEntry entry;
    if (key == "plan" && manifest.plan.empty() && is_digest(line)) {
      manifest.plan = std::string(line);
    } else if (key == "file" && parse_manifest_line(line, entry) && seen.insert(entry.path).second) {
      manifest.files.push_back(std::move(entry));
    } else {
      problem = "line " + std::to_string(number) + " is malformed";
      return false;
    }
  }
  if (manifest.plan.empty()) problem = "it names no plan";
  return !manifest.plan.empty();
}

}  // namespace graphpipe::wire
