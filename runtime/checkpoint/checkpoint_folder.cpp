#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/error.h"
#include "runtime/io/output_file.h"
#include "runtime/io/sha256.h"
#include "support/mapped_file.h"

namespace graphpipe::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWriting = ".writing-", kRemoving = ".removing-";

[[noreturn]] void cannot(const std::string& path, std::string_view what, std::string_view why) {
  throw RunError(Diagnostic{.code = Code::kEnvironment,
                            .origin = ModelText(path),
                            .message = text("cannot ", what, ": ", why),
                            .hint = "check the folder, its permissions and the space on its disk"});
}

void flush_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) cannot(path, "open the folder", std::strerror(errno));
  // Some file systems cannot flush a folder.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) cannot(path, "flush the folder", std::strerror(errno));
}

void rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) cannot(to, "give the checkpoint its name", std::strerror(errno));
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory) cannot(path, "read the folder", error.message());
  std::ranges::sort(names);
  return names;
}

// What an interrupted run left behind: unfinished checkpoints, and the mark's temporary file.
bool is_leftover(const std::string& name) {
  return name.starts_with(kWriting) || name.starts_with(kRemoving) ||
         (name.starts_with(wire::kCheckpointsMark) && name != wire::kCheckpointsMark);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) cannot(path, "remove it", error.message());
}

std::string mark_text(const std::string& model) { return "graphpipe-checkpoints 1\nmodel " + model + "\n"; }

// Absent if there is no mark.
std::optional<std::string> read_mark(const std::string& path) {
  const std::string file = path + "/" + std::string(wire::kCheckpointsMark);
  if (::access(file.c_str(), F_OK) != 0) return std::nullopt;
  return std::string(value_or_throw(MappedFile::open(file)).text());
}

void refuse(const std::string& path, std::string_view why, std::string_view hint) {
  throw RunError(Diagnostic{
      .code = Code::kUsage, .origin = ModelText(path), .message = std::string(why), .hint = std::string(hint)});
}

void check_owner(const std::string& path, const std::string& model, bool may_hold_some) {
  if (const std::optional<std::string> mark = read_mark(path)) {
    if (*mark != mark_text(model))
      refuse(path, "the folder holds checkpoints of another model", "name another folder with --checkpoint");
    if (!may_hold_some && !checkpoint_steps(path).empty())
      refuse(path, text("the folder holds checkpoints already, up to step ", checkpoint_steps(path).back()),
             "go on from them with --resume and the same folder, or name another one");
    return;
  }
  for (const std::string& name : names_in(path))
    if (!is_leftover(name))
      refuse(path, text("the folder holds ", quoted(ModelText(name)), " and is no folder of checkpoints"),
             "name a new folder, or an empty one");
}

// Locks the folder itself, so that no lock file is needed.
Descriptor take_lock(const std::string& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) cannot(path, "open the folder", std::strerror(errno));
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(path),
                              .message = "another run keeps its checkpoints in this folder",
                              .hint = "name another folder, or wait until that run has ended"});
  return folder;
}

// The first checkpoint may be due after hours: what forbids it should be known before.
void check_writable(const std::string& path) {
  const std::string folder = text(path, "/", kWriting, "try");
  if (::mkdir(folder.c_str(), 0777) != 0) cannot(path, "write into the folder", std::strerror(errno));
  ::rmdir(folder.c_str());
}

void check_files(const std::string& folder, const wire::CheckpointRecord& record) {
  for (const wire::ManifestEntry& entry : record.files) {
    const MappedFile file = value_or_throw(MappedFile::open(folder + "/" + entry.path));
    if (file.bytes().size() != static_cast<size_t>(entry.size) || sha256_hex(file.bytes()) != entry.sha256)
      throw RunError(Diagnostic{.code = Code::kMalformedFile,
                                .origin = ModelText(file.path()),
                                .message = "the file is not the one that was written",
                                .hint = "resume from another checkpoint"});
  }
}

/// Ranks on other hosts may have written their files into a different folder of the same name.
void expect_files(const std::string& folder, const wire::CheckpointRecord& record) {
  for (const wire::ManifestEntry& file : record.files) {
    std::error_code error;
    const uintmax_t size = fs::file_size(folder + "/" + file.path, error);
    if (error || size != static_cast<uintmax_t>(file.size))
      throw RunError(Diagnostic{.code = Code::kEnvironment,
                                .origin = ModelText(folder + "/" + file.path),
                                .message = "a rank has written this file of the checkpoint, and it is not here",
                                .hint = "name a folder for --checkpoint that the hosts of all ranks share"});
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& path, const std::string& model, bool may_hold_some)
    : path_(path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error && fs::is_symlink(path)) cannot(path, "make the folder", "a symbolic link that leads nowhere is there");
  if (error) cannot(path, "make the folder", error.message());
  check_owner(path, model, may_hold_some);
  lock_ = take_lock(path);
  for (const std::string& name : names_in(path))
    if (is_leftover(name)) remove_tree(path + "/" + name);
  check_writable(path);
  if (read_mark(path)) return;
  OutputFile mark(path + "/" + std::string(wire::kCheckpointsMark));
  mark.write(mark_text(model));
  mark.keep();
}

void CheckpointFolder::commit(const wire::CheckpointRecord& record, const std::string& token, int64_t keep) {
  const std::string unfinished = unfinished_checkpoint(path_, record.step, token);
  expect_files(unfinished, record);
  const std::string body = wire::print_checkpoint(record);
  OutputFile file(unfinished + "/" + std::string(wire::kCheckpointRecord));
  file.write(body);
  file.write(text(wire::kCheckpointEnd, sha256_hex(std::as_bytes(std::span(body))), "\n"));
  file.keep();
  flush_folder(unfinished);
  const auto retire = [&](int64_t step) {
    const std::string name = wire::checkpoint_name(step);
    const std::string aside = path_ + "/" + std::string(kRemoving) + name + "-" + token;
    rename_folder(path_ + "/" + name, aside);
    remove_tree(aside);
  };
  // A checkpoint of this step that already exists was found damaged, or the run would have resumed from it.
  const std::vector<int64_t> before = checkpoint_steps(path_);
  if (std::ranges::find(before, record.step) != before.end()) retire(record.step);
  rename_folder(unfinished, path_ + "/" + wire::checkpoint_name(record.step));
  flush_folder(path_);
  // Later ones are damaged too.
  std::vector<int64_t> steps = checkpoint_steps(path_);
  for (; steps.back() > record.step; steps.pop_back()) retire(steps.back());
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) retire(steps[i]);
}

std::string unfinished_checkpoint(const std::string& path, int64_t step, const std::string& token) {
  return path + "/" + std::string(kWriting) + wire::checkpoint_name(step) + "-" + token;
}

void remove_unfinished(const std::string& path, const std::string& token, const std::set<int64_t>& spared) {
  std::set<std::string> stay;
  for (const int64_t step : spared) stay.insert(unfinished_checkpoint(path, step, token));
  std::error_code gone;
  for (const std::string& name : names_in(path))
    if (is_leftover(name) && name.ends_with("-" + token) && !stay.contains(path + "/" + name))
      fs::remove_all(path + "/" + name, gone);
}

std::vector<int64_t> checkpoint_steps(const std::string& path) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(path))
    if (const std::optional<int64_t> step = wire::step_of_checkpoint(name)) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

wire::CheckpointRecord read_checkpoint_record(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + std::string(wire::kCheckpointRecord);
  const MappedFile file = value_or_throw(MappedFile::open(path));
  const std::string_view all = file.text();
  const size_t body = std::min(all.rfind(wire::kCheckpointEnd), all.size());
  const std::string end = text(wire::kCheckpointEnd, sha256_hex(std::as_bytes(std::span(all.substr(0, body)))), "\n");
  const auto malformed = [&](std::string_view why) {
    throw RunError(Diagnostic{.code = Code::kMalformedFile,
                              .origin = ModelText(path),
                              .message = std::string(why),
                              .hint = "resume from another checkpoint"});
  };
  if (all.substr(body) != end) malformed("its last line is not the digest of the lines before");
  wire::CheckpointRecord record;
  std::string problem;
  if (!wire::parse_checkpoint(all.substr(0, body), record, problem)) malformed(problem);
  return record;
}

std::optional<FoundCheckpoint> find_last_checkpoint(const std::string& path, Diagnostics& problems) {
  const std::vector<int64_t> steps = checkpoint_steps(path);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    FoundCheckpoint found{.path = path + "/" + wire::checkpoint_name(*step), .record = {}};
    try {
      found.record = read_checkpoint_record(found.path);
      check_files(found.path, found.record);
      if (found.record.step == *step) return found;
      fail(Code::kMalformedFile, text(quoted(ModelText(found.path)), " was given another name"), "rename it back");
    } catch (const RunError& error) {
      problems.push_back(error.diagnostic());
    }
  }
  return std::nullopt;
}

}  // namespace graphpipe::runtime
