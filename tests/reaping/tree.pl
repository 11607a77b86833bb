# A process tree of one shape; all its processes have the command line `perl tree.pl SHAPE MARK`. Each lasting one
# writes its pid to the file `pids` of the directory it was started in.
use strict;
use warnings;
use POSIX ();

my ($shape, $mark) = @ARGV;
my $nobody = 65534;

sub note {
    open(my $file, '>>', 'pids') or die "pids: $!";
    syswrite($file, "$$\n");
    close($file);
}

sub stay {
    note();
    sleep(1000) while 1;
}

sub child {
    my ($code) = @_;
    my $pid = fork() // die "fork: $!";
    return $pid if $pid;
    $code->();
    POSIX::_exit(0);
}

# Returns in a process whose parent has ended.
sub orphan {
    my ($code) = @_;
    waitpid(child(sub { child($code) }), 0);
}

sub deaf { $SIG{$_} = 'IGNORE' for @_ }

sub apart { POSIX::setsid() != -1 or die "setsid: $!" }

# Each successor forks another one in a session of its own, for about ten seconds at most.
sub fork_on {
    my ($hops) = @_;
    deaf('TERM', 'HUP', 'CHLD');
    note();
    sleep(1000) while $ENV{STILL};
    my $end = time + 10;
    while (time < $end) {
        child(sub { apart(); select(undef, undef, undef, 0.3) });
        select(undef, undef, undef, 0.03);
        if ($hops) { my $pid = fork() // next; POSIX::_exit(0) if $pid; }
    }
}

# A shell's processes are small and start fast.
my $chain = q{
    grow() {
        read -r pid rest </proc/self/stat
        echo $pid >>pids
        [ $1 -gt 1 ] || read -r line <never
        (grow $(($1 - 1))) &
        wait
    }
    grow $1
};

my %shapes = (
    child  => sub { child(\&stay) },
    orphan => sub { orphan(\&stay) },
    setsid => sub { child(sub { apart(); stay() }) },
    daemon => sub { orphan(sub { apart(); stay() }) },
    # The visible environment is that of the exec, so the program is executed again.
    bare    => sub { orphan(sub { apart(); %ENV = (); exec($^X, $0, 'stay', $mark) }) },
    deaf    => sub { deaf('TERM', 'HUP', 'INT'); child(\&stay) },
    stopped => sub { child(sub { apart(); note(); kill('STOP', $$); sleep(1000) while 1 }) },
    zombies => sub { child(sub { }) for 1 .. 20; child(sub { child(sub { }) for 1 .. 20; stay() }) },
    forks   => sub { for my $n (1 .. 8) { child(sub { apart(); fork_on($n % 2) }) } },
    hangup  => sub { deaf('HUP'); child(\&stay); orphan(sub { apart(); stay() }) },
    other   => sub {
        my $become = sub { note(); $( = $nobody; $) = "$nobody $nobody"; POSIX::setuid($nobody); };
        child(sub { $become->(); sleep(1000) while 1 });
        orphan(sub { apart(); $become->(); sleep(1000) while 1 });
    },
    chain   => sub { POSIX::mkfifo('never', 0600); exec('sh', '-c', $chain, $mark, 150) },
    rebels  => sub {
        my $init = getppid();
        child(sub { apart(); deaf('TERM'); stay() });
        $SIG{TERM} = sub { kill('KILL', $init); POSIX::_exit(0) };
    },
    stay    => sub { },
);
$shapes{$shape}->();
stay();
