#include "driver/launch/unpack_data.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "driver/launch/build_folder.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/process.h"
#include "support/text.h"
#include "wire/data_file.h"
#include "wire/data_table.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Diagnostic no_environment(std::string message, std::string hint) {
  return {.code = Code::kEnvironment, .message = std::move(message), .hint = std::move(hint)};
}

Result<std::string> data_cache() {
  if (const std::string given = variable("GRAPHPIPE_DATA_CACHE"); !given.empty()) return fs::absolute(given).string();
  // A relative path is none (XDG Base Directory Specification).
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute())
    return (cache / "graphpipe/data").string();
  if (const fs::path home = variable("HOME"); home.is_absolute()) return (home / ".cache/graphpipe/data").string();
  return no_environment("there is no folder to unpack data into", "name one in GRAPHPIPE_DATA_CACHE");
}

Result<std::string> unpacking_program() {
  const std::string path = installed_runtime() + "/share/graphpipe/python/graphpipe_data";
  if (fs::exists(path)) return path;
  return no_environment("the program that unpacks data is not installed with the runtime", kInstallRuntimeHint);
}

/// What the program says: a folder, or problems.
struct Answer {
  std::string folder;
  Diagnostics problems;

  void read(std::string_view line) {
    std::vector<std::string> words;
    for (const std::string_view word : split(line, " "))
      words.push_back(wire::decoded_name(word).value_or(std::string(word)));
    if (words.size() == 2 && words[0] == "folder") folder = words[1];
    if (words.size() == 4 && words[0] == "problem" && problems.size() < kMaxProblems)
      problems.push_back({.code = Code::kBadData,
                          .origin = ModelText(words[1]),
                          .message = Terminal::encode_text(words[2]).str(),
                          .hint = Terminal::encode_text(words[3]).str()});
  }
};

// The program reads files from strangers, which may crash it.
Diagnostic unexpected_end(const std::string& files, const Ending& ending) {
  if (interrupted()) return was_interrupted("the unpacking of the data");
  const std::string how = ending.signal != 0 ? text("signal ", ending.signal) : text("exit code ", ending.exit_code);
  return {.code = Code::kBadData,
          .origin = ModelText(files),
          .message = "the program that unpacks the data ended with " + how,
          .hint = "its messages are above; check the files"};
}

Result<std::string> unpacked(const std::string& generated_folder, const std::string& files,
                             const std::vector<wire::Padding>& paddings, bool quiet) {
  GP_TRY(const std::string cache, data_cache());
  GP_TRY(const std::string program, unpacking_program());
  const std::string python = variable("GRAPHPIPE_PYTHON");
  Command command{.arguments = {python.empty() ? "python3" : python, "-B", program, "--lines", "--cache", cache,
                                "--table", generated_folder + "/" + std::string(wire::kDataTableFile)}};
  if (quiet) command.arguments.emplace_back("--quiet");
  for (const wire::Padding& padding : paddings) command.arguments.push_back("--pad=" + wire::write_padding(padding));
  command.arguments.insert(command.arguments.end(), {"--", files});
  Answer answer;
  const auto read = [&](size_t, std::string_view line) { answer.read(line); };
  GP_TRY(const std::vector<Ending> endings, run_processes({command}, 0, read));
  const Ending& ending = endings.front();
  if (ending.ok() && !answer.folder.empty()) return answer.folder;
  if (answer.problems.empty()) return unexpected_end(files, ending);
  if (ending.exit_code != wire::kExitInputRefused)
    for (Diagnostic& problem : answer.problems) problem.code = Code::kEnvironment;
  return answer.problems;
}

// Opens the folder with a shared lock, which keeps other runs from removing it.
Result<Descriptor> held_folder(const std::string& folder) {
  Descriptor held(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool removed = !held || (::flock(held.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK);
  // Where the file system has no locks, the folder is only safe as long as it counts as just used.
  if (!removed) return held;
  return no_environment("the unpacked data in " + folder + " cannot be opened, or another run removes them",
                        "start the run again; the cache may be too small (GRAPHPIPE_DATA_CACHE_GIB)");
}

bool has_ending(const fs::path& file, std::string_view ending) { return file.extension().string() == ending; }

// A folder without data of its own whose folders have packed files, such as the splits of a Hugging Face DatasetDict:
// the first of these by name; empty: it is none.
std::string first_split(const std::string& data) {
  std::error_code error;
  std::string first;
  for (const fs::directory_entry& entry : fs::directory_iterator(data, error)) {
    if (has_ending(entry.path(), ".npy") || has_ending(entry.path(), ".pb")) return {};
    if (!entry.is_directory(error)) continue;
    for (const fs::directory_entry& part : fs::directory_iterator(entry.path(), error))
      if (has_ending(part.path(), ".npy") || has_ending(part.path(), ".pb")) return {};
    const std::string name = entry.path().filename().string();
    if (names_packed_files(entry.path().string()) && (first.empty() || name < first)) first = name;
  }
  return first;
}

}  // namespace

bool names_packed_files(const std::string& data) {
  std::error_code error;
  if (!fs::is_directory(data, error)) return wire::has_packed_ending(data);
  bool packed = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(data, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".npy" || ending == ".pb") return false;
    packed = packed || (wire::has_packed_ending(entry.path()) && entry.is_regular_file(error));
  }
  return packed;
}

Result<HeldData> unpack_data(const std::string& generated_folder, wire::RunOptions& run, bool quiet) {
  HeldData held;
  for (std::string* data : {&run.data.folder, &run.data.eval_folder}) {
    if (data->empty()) continue;
    if (!names_packed_files(*data)) {
      if (const std::string split = first_split(*data); !split.empty())
        return Diagnostic{
            .code = Code::kBadData,
            .origin = ModelText(*data),
            .message = text("the folder holds no data, and folders of Parquet, Arrow or tar files such as ",
                            quoted(ModelText(split))),
            .hint = "name one of these folders"};
      continue;
    }
    GP_TRY(*data, unpacked(generated_folder, *data, run.data.paddings, quiet));
    GP_TRY(Descriptor folder, held_folder(*data));
    held.folders.push_back(std::move(folder));
  }
  return held;
}

}  // namespace graphpipe::driver
