// A file that is replaced is the old one or the whole new one, whenever its writer dies, and the new one is on the disk
// once the writer has been told so.

#include "support/output_file.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/crash/disk_events.h"
#include "tests/runtime/run_programs.h"

using graphpipe::OutputFile;
using graphpipe::runtime::test::read_file;

namespace {

namespace fs = std::filesystem;

const std::string kNew(100000, 'n');

graphpipe::Status replace(const std::string& path) {
  GP_TRY(OutputFile file, OutputFile::create(path));
  GP_TRY_VOID(file.write(kNew));
  return file.commit();
}

// Replaces the file in a process that dies at its `event`-th moment; whether it lived to the end.
bool replaces(const std::string& path, int64_t event) {
  crash::watch(fs::path(path).parent_path(), {.rank = 0, .event = event});
  const pid_t process = fork();
  if (process == 0) {
    crash::become_rank(0, getppid());
    _exit(replace(path).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(process, &status, 0);
  REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
  return WIFEXITED(status);
}

}  // namespace

TEST_CASE("a file is replaced whole or not at all, and flushed before it takes its name") {
  std::string folder = (fs::temp_directory_path() / "graphpipe-replaced-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/out";
  int64_t deaths = 0;
  for (bool lived = false; !lived; ++deaths) {
    CAPTURE(deaths);
    std::ofstream(path) << "old";
    lived = replaces(path, deaths);
    const std::string found = read_file(path);
    CHECK((found == kNew || (!lived && found == "old")));
  }
  CHECK(deaths > 6);  // in the write, and before and after both flushes and the rename
  const std::vector<crash::DiskEvent> journal = crash::journal();
  REQUIRE(journal.size() == 3);
  CHECK(journal[0].operation == crash::Operation::kFlush);
  CHECK(journal[0].size == static_cast<int64_t>(kNew.size()));
  CHECK(journal[1].operation == crash::Operation::kRename);
  CHECK(journal[1].earlier == journal[0].path);
  CHECK(journal[1].path == path);
  CHECK(journal[2].operation == crash::Operation::kFlush);
  CHECK(journal[2].path == folder);
  fs::remove_all(folder);
}
