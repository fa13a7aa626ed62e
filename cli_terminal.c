/*
 * What is for people at a terminal: width and colours of the report, a line that says that something takes long, and a pager. None of it happens
 * when the output goes elsewhere.
 */
#include "cli.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A terminal that can move its cursor. */
static bool
is_capable(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

/* Width and colours are those of the terminal that the report goes to; NO_COLOR and CLICOLOR=0 are obeyed. */
void
look_at_terminal(struct cli *c)
{
	const char *columns = getenv("COLUMNS"), *no_colour = getenv("NO_COLOR"), *colour = getenv("CLICOLOR");
	struct winsize w;

	if (c->output || !isatty(STDOUT_FILENO))
		return;
	c->view.colour = is_capable(STDOUT_FILENO) && !(no_colour && *no_colour) && !(colour && strcmp(colour, "0") == 0);
	if (columns && atoi(columns) > 0)
		c->view.width = (unsigned)atoi(columns);
	else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
		c->view.width = w.ws_col;
}

/* ---- progress --------------------------------------------------------------------------------------------------------- */

#define FIRST_MS 500
#define EVERY_MS 200

struct progress {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t over;
	const char *what;
	size_t done, total;        /* of configurations; total 0: only time is known */
	bool ends, shown;
};

static void
in_ms(struct timespec *t, long ms)
{
	clock_gettime(CLOCK_MONOTONIC, t);
	t->tv_nsec += ms % 1000 * 1000000;
	t->tv_sec += ms / 1000 + t->tv_nsec / 1000000000;
	t->tv_nsec %= 1000000000;
}

/* One line, written over again and again, and wiped out at the end. */
static void *
tell(void *arg)
{
	struct progress *p = arg;
	struct timespec start, next;

	clock_gettime(CLOCK_MONOTONIC, &start);
	in_ms(&next, FIRST_MS);
	pthread_mutex_lock(&p->lock);
	while (!p->ends)
		if (pthread_cond_timedwait(&p->over, &p->lock, &next) == ETIMEDOUT && !p->ends) {
			struct timespec now;

			clock_gettime(CLOCK_MONOTONIC, &now);
			if (p->total)
				fprintf(stderr, "\r%s: %zu of %zu\033[K", p->what, p->done, p->total);
			else
				fprintf(stderr, "\r%s: %ld s\033[K", p->what, (long)(now.tv_sec - start.tv_sec));
			fflush(stderr);
			p->shown = true;
			in_ms(&next, EVERY_MS);
		}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static bool
prepare(struct progress *p)
{
	pthread_condattr_t monotonic;
	bool ok;

	if (pthread_condattr_init(&monotonic) != 0)
		return false;
	ok = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&p->over, &monotonic) == 0 && pthread_mutex_init(&p->lock, NULL) == 0;
	pthread_condattr_destroy(&monotonic);
	return ok;
}

struct progress *
progress_start(const struct cli *c, const char *what)
{
	struct progress *p = !c->quiet && is_capable(STDERR_FILENO) ? calloc(1, sizeof *p) : NULL;

	if (!p)
		return NULL;
	p->what = what;
	if (!prepare(p) || pthread_create(&p->thread, NULL, tell, p) != 0) {
		free(p);
		return NULL;
	}
	return p;
}

int
progress_count(void *user, size_t done, size_t total)
{
	struct progress *p = user;

	if (!p)
		return 0;
	pthread_mutex_lock(&p->lock);
	p->done = done;
	p->total = total;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void
progress_end(struct progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ends = true;
	pthread_cond_signal(&p->over);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	if (p->shown)
		fputs("\r\033[K", stderr);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->over);
	free(p);
}

/* ---- paging ------------------------------------------------------------------------------------------------------------- */

/* Somebody who can turn the pages: a screen of known height, keys, and no CI system that only looks like a terminal. */
static bool
has_reader(void)
{
	const char *ci = getenv("CI");
	struct winsize w;

	return is_capable(STDOUT_FILENO) && isatty(STDIN_FILENO) && !(ci && *ci) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0;
}

/* As git does: MEMCREST_PAGER, else PAGER, else less; "" and cat mean none. less shows what fits on the screen without stopping. */
static const char *
pager_command(void)
{
	const char *s = getenv("MEMCREST_PAGER");

	if (!s)
		s = getenv("PAGER");
	if (!s)
		s = "less";
	return *s && strcmp(s, "cat") != 0 ? s : NULL;
}

static void
become_pager(const char *command, int in)
{
	char line[1024];

	snprintf(line, sizeof line, "exec %s", command);
	signal(SIGPIPE, SIG_DFL);
	dup2(in, STDIN_FILENO);
	close(in);
	setenv("LESS", "FRX", 0);
	setenv("LV", "-c", 0);
	execl("/bin/sh", "sh", "-c", line, (char *)NULL);
	_exit(127);
}

/* A pager that cannot be run must not swallow the report. */
static bool
is_there(const char *command)
{
	char line[1100];

	snprintf(line, sizeof line, "command -v %.*s >/dev/null 2>&1", (int)strcspn(command, " \t"), command);
	return system(line) == 0;
}

/* From here on standard output is the pager's input. What it need not read any more is no failure. */
void
pager_open(struct cli *c)
{
	const char *command = c->no_pager || c->pager || !has_reader() ? NULL : pager_command();
	int ends[2];
	pid_t pid;

	if (!command || strlen(command) > 1000 || !is_there(command) || fflush(stdout) != 0 || pipe(ends) != 0)
		return;
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		become_pager(command, ends[0]);
	}
	close(ends[0]);
	if (pid > 0 && dup2(ends[1], STDOUT_FILENO) >= 0) {
		c->pager = pid;
		signal(SIGPIPE, SIG_IGN);
		signal(SIGINT, SIG_IGN);   /* is the pager's */
	}
	close(ends[1]);
}

void
pager_close(struct cli *c)
{
	if (c->pager <= 0)
		return;
	fflush(stdout);
	close(STDOUT_FILENO);
	while (waitpid((pid_t)c->pager, NULL, 0) < 0 && errno == EINTR)
		;
	c->pager = 0;
}
