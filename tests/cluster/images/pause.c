/* What holds a Pod's namespaces: waits for a signal to end, and reaps what is left behind. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
	(void)signal;
	_exit(0);
}

static void reap(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

int main(void) {
	struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};

	signal(SIGINT, end);
	signal(SIGTERM, end);
	sigaction(SIGCHLD, &on_child, NULL);
	for (;;) {
		pause();
	}
}
