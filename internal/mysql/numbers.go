package mysql

import (
	"slices"
	"strings"

	driverlib "github.com/go-sql-driver/mysql"
)

// Numbers of errors that have a meaning of their own.
const (
	tooMany       = 1040 // as many connections as the server admits, in all
	tooManyOfUser = 1203 // or of one user
	overQuota     = 1226 // or of one account, or its statements of this hour
	noThread      = 1135 // it can't start a thread for another connection
	schemaLocked  = 3989 // ALTER SCHEMA ... READ ONLY = 1
	ofEngine      = 1030
	ofFileLock    = 1015
	ofCommit      = 1180
)

// classNumbers is the class of each error that a statement of ours, or an attempt to connect, can meet. The numbers up to 1899 are the same in
// MySQL and MariaDB; of a later one that both use differently, only one product's can be met. testdata/errors.txt lists all errors of both
// servers with the class that results. Numbers that are missing here have the class of their SQLSTATE, else Other.
var classNumbers = map[Class][]uint16{
	// Deadlocks, lock waits, NOWAIT, rows or tables that changed, statements that were killed or ran out of time, plans and prepared statements
	// that are stale, and rollbacks by XA or Group Replication. The server has undone the statement, or the transaction.
	Contended: {
		1020, 1205, 1206, 1213, 1297, 1317, 1402, 1412, 1461, 1613, 1614, 1615, 1637, 1689, 1806, 1964, 1969, 3024, 3058, 3101, 3132, 3133, 3177, 3572, 3985, 4060,
	},
	Duplicate: {1022, 1062, 1169, 1586, 1859},
	// Tables without their file are missing too.
	Missing: {1049, 1109, 1146, 1812, 1814, 1932},
	// Also a firewall or an audit that forbids the statement, and a schema that is read-only: the others on the server are not.
	Denied: {1044, 1142, 1143, 1227, 1370, 3164, 3879, schemaLocked, 6038, 6444, 6544},
	// read_only, a read-only transaction, InnoDB that is read-only or recovers, and a group that changes its primary.
	Demoted: {1036, 1290, 1792, 1836, 1874, 1881, 4094},
	// The server stops, is not ready, in offline mode, has no connection or thread left, ended the session, or the network failed.
	Lost: {
		tooMany, 1042, 1043, 1047, 1053, 1077, 1078, 1079, 1080, 1081, noThread, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1189, 1190,
		tooManyOfUser, 1218, overQuota, 1835, 1927, 3032, 3100, 3168, 3169, 4031, 6400,
		9001, 9002, 9003, 9005, // of ProxySQL and TiDB: what is behind them does not answer
	},
	// Password, host, account, or the way to log in.
	Barred: {1045, 1129, 1130, 1251, 1275, 1524, 1698, 1820, 1862, 1873, 3118, 3159, 3955, 4150, 4151, 6126, 6127},
	// 3, 5 and 20 are those of the servers' file library. Memory counts too: a smaller statement may fit.
	Full: {3, 5, 20, 1021, 1026, 1037, 1038, 1041, 1114, 1257, 3015, 3019, 3044, 3170, 3675},
	// SQLSTATE has them as failures of the connection, but a repeat would fail again: packets that are too large.
	Other: {1153, 3068, 4075},
}

// byNumber is classNumbers by number.
var byNumber = func() map[uint16]Class {
	all := make(map[uint16]Class)
	for class, numbers := range classNumbers {
		for _, n := range numbers {
			all[n] = class
		}
	}
	return all
}()

// byState is the class of errors that have no entry in classNumbers, by the beginning of their SQLSTATE: those of later versions.
var byState = []struct {
	begins string
	class  Class
}{{"08", Lost}, {"25006", Demoted}, {"28", Barred}, {"40", Contended}}

// byEngine is the class of errors with the number of a storage engine or the operating system in their text: "Got error 28 ...", in the
// language of the server. It has the numbers that MySQL and MariaDB share.
var byEngine = map[string]Class{
	"12": Full, "28": Full, "128": Full, "135": Full, "136": Full,
	"123": Contended, "146": Contended, "147": Contended, "149": Contended, "159": Contended, "177": Contended,
	"165": Demoted, "190": Demoted,
	"155": Missing,
}

// fromProxy reports whether a number is one of a client library. A server sends none of them: a proxy has lost its server.
func fromProxy(number uint16) bool { return number >= 2000 && number < 3000 }

// classOfSaid classifies an error that a server sent.
func classOfSaid(said *driverlib.MySQLError) Class {
	switch said.Number {
	case ofEngine, ofFileLock:
		return engineClass(said.Message)
	case ofCommit: // unless the engine names a reason, the row may be stored
		if class := engineClass(said.Message); class != Other {
			return class
		}
		return Lost
	}
	if class, known := byNumber[said.Number]; known {
		return class
	}
	if fromProxy(said.Number) {
		return Lost
	}
	for _, state := range byState {
		if strings.HasPrefix(string(said.SQLState[:]), state.begins) {
			return state.class
		}
	}
	return Other
}

// engineClass classifies by the first number in the text.
func engineClass(message string) Class {
	numbers := strings.FieldsFunc(message, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) == 0 {
		return Other
	}
	return byEngine[numbers[0]]
}

// untouched are those errors of class Lost with which a server refuses a connection, or a statement before it has done anything.
var untouched = []uint16{tooMany, 1042, 1043, 1047, noThread, tooManyOfUser, overQuota, 3032, 3168, 6400}

// fullHouse are those after which the connections that the server has go on.
var fullHouse = []uint16{tooMany, noThread, tooManyOfUser, overQuota}

// rowNumbers are the numbers of errors for a value that no repeat makes right: too long, out of range, not of its character set or form,
// refused by a check, a key or a trigger. Those of SQLSTATE 22, a data exception, need no entry on a server that sends it.
var rowNumbers = []uint16{1118, 1264, 1265, 1292, 1300, 1366, 1367, 1369, 1406, 1411, 1441, 1452, 1525, 1526, 1644, 1690, 1713, 3140, 3819, 3854, 3988, 4025}

// ofRow reports whether a server has refused a row for what it holds.
func ofRow(said *driverlib.MySQLError) bool {
	return slices.Contains(rowNumbers, said.Number) || strings.HasPrefix(string(said.SQLState[:]), "22")
}
